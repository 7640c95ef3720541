//! The store by itself: versions, lists, watches that do not read, and objects that expire.

use serde_json::json;

use super::*;

fn services() -> KindId {
    KindId::built_in("Service").unwrap()
}

fn namespaces() -> KindId {
    KindId::built_in("Namespace").unwrap()
}

fn key(namespace: &str, name: &str) -> Key {
    Key { namespace: namespace.into(), name: name.into() }
}

#[test]
fn versions_rise_over_all_kinds() {
    let store = Store::new(100);
    store.write(|state| {
        assert_eq!(state.put(&namespaces(), key("", "a"), json!({}), Duration::ZERO).version(), 101);
        assert_eq!(state.put(&services(), key("a", "b"), json!({}), Duration::ZERO).version(), 102);
        assert_eq!(state.remove(&services(), &key("a", "b"), Duration::ZERO).map(|last| last.version()), Some(103));
    });
}

#[test]
fn lists_are_in_order_and_of_one_namespace() {
    let store = Store::new(1);
    store.write(|state| {
        for (namespace, name) in [("b", "x"), ("a", "z"), ("a", "y"), ("ab", "w")] {
            state.put(&services(), key(namespace, name), json!({}), Duration::ZERO);
        }
        let names = |part: Part| state.list(&services(), &part).map(|(key, _)| key.name.clone()).collect::<String>();
        assert_eq!(names(Part::default()), "yzwx");
        assert_eq!(names(Part { namespace: Some("a".into()), name: None }), "yz");
        assert_eq!(names(Part { namespace: Some("a".into()), name: Some("z".into()) }), "z");
    });
}

#[test]
fn a_watch_that_does_not_read_is_ended() {
    let store = Store::new(1);
    let (mut slow, other) = store.write(|state| {
        let slow = state.subscribe(&services(), Part::default(), false);
        (slow, state.subscribe(&services(), Part { namespace: Some("other".into()), name: None }, false))
    });
    for nth in 0..=WATCH_DEPTH {
        store.write(|state| state.put(&services(), key("a", &nth.to_string()), json!({}), Duration::ZERO));
    }
    let mut got = 0;
    while slow.try_recv().is_ok() {
        got += 1;
    }
    assert_eq!(got, WATCH_DEPTH);
    assert!(slow.is_closed());
    assert!(!other.is_closed());
}

#[test]
fn objects_with_a_lifetime_expire() {
    let events = &KindId::built_in("Event").unwrap();
    let store = Store::new(1);
    store.write(|state| {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        state.put(events, key("a", "old"), json!({}), Duration::ZERO);
        state.put(events, key("a", "new"), json!({}), Duration::ZERO);
        state.put(&services(), key("a", "service"), json!({}), Duration::ZERO);
        let mut watch = state.subscribe(events, Part::default(), false);
        state.put(events, key("a", "new"), json!({"again": true}), minutes(30));
        assert!(watch.try_recv().is_ok());
        state.trim(minutes(60) - Duration::from_nanos(1));
        assert!(state.get(events, &key("a", "old")).is_some());
        state.trim(minutes(60));
        assert!(state.get(events, &key("a", "old")).is_none());
        assert_eq!(watch.try_recv().map(|event| event.key.name.clone()).as_deref(), Ok("old"), "it is told");
        state.put(&services(), key("a", "other"), json!({}), minutes(89));
        assert!(state.get(events, &key("a", "new")).is_some());
        state.put(&services(), key("a", "other"), json!({}), minutes(90));
        assert!(state.get(events, &key("a", "new")).is_none());
        assert!(state.get(&services(), &key("a", "service")).is_some());
    });
}

/// While the check of a write goes on, the only thread of the runtime is free, and reads are answered; another change
/// waits.
#[tokio::test]
async fn a_slow_write_holds_no_thread_of_the_runtime() {
    let store = Arc::new(Store::new(1));
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let (proceed, may_proceed) = std::sync::mpsc::channel();
    let slow = {
        let store = store.clone();
        move || {
            let state = store.read();
            begun.send(()).unwrap();
            may_proceed.recv().unwrap();
            let version = state.version();
            drop(state);
            store.commit(|state| state.put(&services(), key("a", "b"), json!({}), Duration::ZERO));
            version
        }
    };
    let (writer, other) = (store.clone(), store.clone());
    let write = tokio::spawn(async move { writer.apart(slow).await });
    has_begun.await.unwrap();
    let change = tokio::spawn(async move {
        other.between(|state| state.put(&services(), key("a", "c"), json!({}), Duration::ZERO).version()).await
    });
    assert_eq!(store.look(State::version).await, 1);
    tokio::task::yield_now().await;
    assert!(!change.is_finished());
    proceed.send(()).unwrap();
    assert_eq!(write.await.unwrap(), Some(1));
    assert_eq!(change.await.unwrap(), 3);
}

#[tokio::test]
async fn a_write_that_panics_lets_the_next_one_begin() {
    let store = Store::new(1);
    assert_eq!(store.apart(|| panic!("a fault")).await.map(|()| 1), None);
    assert_eq!(store.apart(|| 2).await, Some(2));
}
