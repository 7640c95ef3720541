//! The commands of the store: three scripts, each of which it runs as a whole and for one key, so that a cluster can
//! hold the keys on different nodes.
//!
//! | key | value |
//! |---|---|
//! | `PREFIX:replicas` | a sorted set: each replica, with the time in ms after which it counts as gone |
//! | `PREFIX:c:LIMIT:VALUES` | a hash that expires with its window: requests granted, start in µs, last returns |

use std::sync::LazyLock;

use redis::aio::ConnectionLike;
use redis::{RedisResult, Script};

/// Grants requests of a counter: half of its part of what is left, at least one. So much is left in the store that
/// every other replica can have as much, and the last requests are granted one by one.
static GRANT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local max, window, replicas, alone = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local kept = redis.call('HMGET', KEYS[1], 'n', 'w')
local used, began, ends = tonumber(kept[1]), kept[2], window
if used and began then
  ends = redis.call('PTTL', KEYS[1])
else
  local now = redis.call('TIME')
  used, began = 0, string.format('%d%06d', now[1], now[2])
end
used = used + alone
local granted = 0
if used < max then
  granted = math.max(1, math.floor((max - used) / (2 * replicas)))
end
if granted + alone > 0 then
  redis.call('HSET', KEYS[1], 'n', string.format('%d', used + granted), 'w', began)
  if not kept[1] or ends < 0 then
    ends = window
    redis.call('PEXPIRE', KEYS[1], window)
  end
end
return {granted, math.max(0, max - used - granted), ends, began}
",
    )
});

/// Gives requests of a counter back, if the window in which they were granted still runs. The client of a cluster sends
/// a command again whose answer was lost: a return with a number that the replica has used, or an earlier one, is void.
static GIVE_BACK: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local kept = redis.call('HMGET', KEYS[1], 'n', 'w', ARGV[3])
if not kept[1] or kept[2] ~= ARGV[1] or tonumber(kept[3] or 0) >= tonumber(ARGV[4]) then
  return 0
end
local count = math.min(tonumber(ARGV[2]), tonumber(kept[1]))
redis.call('HSET', KEYS[1], 'n', string.format('%d', kept[1] - count), ARGV[3], ARGV[4])
return count
",
    )
});

/// Notes that a replica is there for a time, or with 0 that it leaves, and returns how many there are.
static PRESENT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local life = tonumber(ARGV[2])
if life > 0 then
  redis.call('ZADD', KEYS[1], string.format('%d', now + life), ARGV[1])
  redis.call('PEXPIRE', KEYS[1], 2 * life)
else
  redis.call('ZREM', KEYS[1], ARGV[1])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%d', now))
return redis.call('ZCARD', KEYS[1])
",
    )
});

/// What is asked about a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    /// The maximum of the limit.
    pub(super) max: u32,
    /// The length of its window in ms.
    pub(super) window_ms: u64,
    /// The number of replicas.
    pub(super) replicas: u32,
    /// The requests that this replica has admitted without the store and not reported yet.
    pub(super) alone: u32,
}

/// What the store grants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Granted {
    /// The requests granted.
    pub(super) count: u32,
    /// The requests left in the store after them.
    pub(super) beyond: u32,
    /// The time in ms until the window ends.
    pub(super) ends_in_ms: u64,
    /// The identity of the window: the time in µs at which it began.
    pub(super) began: u64,
}

/// Asks for requests of a counter.
pub(super) async fn grant(at: &mut impl ConnectionLike, key: &str, wanted: Wanted) -> RedisResult<Granted> {
    let Wanted { max, window_ms, replicas, alone } = wanted;
    let mut call = GRANT.key(key);
    call.arg(max).arg(window_ms).arg(replicas.max(1)).arg(alone);
    let (count, beyond, ends_in_ms, began): (u32, u32, i64, u64) = call.invoke_async(at).await?;
    Ok(Granted { count, beyond, ends_in_ms: u64::try_from(ends_in_ms).unwrap_or(0), began })
}

/// Requests that a replica gives back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Return<'r> {
    /// The identity of the window in which they were granted.
    pub(super) began: u64,
    /// How many they are.
    pub(super) count: u32,
    /// The replica.
    pub(super) replica: &'r str,
    /// A number that is higher for each return of the replica, from 1.
    pub(super) number: u64,
}

/// Gives requests back. Returns how many of them the window that runs has taken.
pub(super) async fn give_back(at: &mut impl ConnectionLike, key: &str, unused: Return<'_>) -> RedisResult<u32> {
    let Return { began, count, replica, number } = unused;
    GIVE_BACK.key(key).arg(began).arg(count).arg(replica).arg(number).invoke_async(at).await
}

/// Notes that a replica is there for so many ms from now, or with 0 that it leaves. Returns the number of replicas.
pub(super) async fn present(at: &mut impl ConnectionLike, key: &str, replica: &str, ms: u64) -> RedisResult<u32> {
    PRESENT.key(key).arg(replica).arg(ms).invoke_async(at).await
}
