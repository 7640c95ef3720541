//! The limits of the budget, and its fair shares.

use super::*;

fn budget(files: u32, memory_kib: u64) -> Budget {
    Budget::new(&BudgetLimits { files, memory_kib, resident_max_kib: 1000, ..BudgetLimits::default() })
}

#[test]
fn nothing_is_charged_beyond_either_limit() {
    let budget = budget(4, 100);
    let (file, memory) = (Cost::new(1, 10), Cost::new(0, 61));
    assert!(budget.charge(file) && !budget.is_pressed());
    assert!(budget.charge(file) && budget.is_pressed(), "half of the files");
    assert!(budget.charge(file));
    assert!(!budget.charge(Cost::new(0, 71)) && !budget.charge(Cost::new(2, 0)));
    assert_eq!(budget.taken(), Cost::new(3, 30));
    budget.release(file);
    budget.release(file);
    assert!(!budget.is_pressed());
    assert!(budget.charge(memory) && budget.is_pressed(), "half of the memory");
    budget.release(memory);
    budget.release(file);
    assert_eq!(budget.taken(), Cost::default());
}

#[test]
fn optional_work_never_causes_pressure() {
    for memory_kib in [1000, 376 * 4, 376 * 4 + 1, 376 * 16, 376 * 16 + 1, 100_000] {
        let budget = budget(1000, memory_kib);
        let count = std::iter::repeat_with(|| budget.charge_spare(Cost::COMPRESSION)).take_while(|did| *did).count();
        assert_eq!(count as u64, (memory_kib - 1) / (4 * 376), "of {memory_kib} KiB");
        budget.note_resident(990);
        assert!(!budget.is_pressed() && !budget.is_exhausted(), "of {memory_kib} KiB");
    }
    let budget = budget(2, 100_000);
    assert!(budget.charge(Cost::PLAIN) && budget.is_pressed() && !budget.charge_spare(Cost::COMPRESSION));
}

#[test]
fn limits_are_clamped_to_the_range_of_the_counters() {
    let most = BudgetLimits::default();
    let largest = budget(u32::MAX, u64::MAX).max();
    assert_eq!((largest.files(), largest.memory_kib()), (most.files.into(), most.memory_kib));
    assert!(budget(0, 0).charge(Cost::new(1, 1)));
}

#[test]
fn a_client_may_hold_everything_until_half_of_the_budget_is_used() {
    let budget = budget(100, 1000);
    let held = Cost::new(26, 0);
    assert!(budget.is_fair(held));
    assert!(budget.charge(Cost::new(50, 0)));
    assert!(!budget.is_fair(held) && budget.is_fair(Cost::new(25, 250)) && !budget.is_fair(Cost::new(0, 251)));
}

#[test]
fn the_configuration_can_only_lower_the_number_of_files() {
    let budget = budget(100, 1_000_000);
    let connection = Cost::new(10, 0);
    budget.allow_files(Some(20));
    assert_eq!((budget.max().files(), budget.service_max().files()), (20, 5));
    assert!(budget.charge(connection) && budget.is_pressed());
    assert!(!budget.is_fair(Cost::new(6, 0)) && budget.is_fair(Cost::new(5, 0)));
    assert!(budget.charge(connection) && !budget.charge(connection));
    budget.allow_files(Some(5));
    assert!(!budget.charge(Cost::new(1, 0)), "what is taken ends by itself");
    budget.allow_files(Some(1000));
    assert_eq!(budget.max().files(), 100);
    budget.allow_files(None);
    assert!(budget.charge(connection) && !budget.is_pressed());
}

#[test]
fn listening_sockets_beyond_the_reserve_reduce_the_files_for_traffic() {
    let budget = Arc::new(budget(100, 1000));
    let mut sockets: Vec<_> = (0..LISTENING_RESERVED).map(|_| budget.listen()).collect();
    assert_eq!(budget.max(), Cost::new(100, 1000));
    sockets.extend((0..30).map(|_| budget.listen()));
    assert_eq!(budget.max(), Cost::new(70, 1000));
    assert!(budget.charge(Cost::new(70, 0)) && !budget.charge(Cost::new(1, 0)));
    sockets.extend((0..100).map(|_| budget.listen()));
    assert_eq!(budget.max().files(), 1);
    drop(sockets);
    assert_eq!(budget.max().files(), 100);
}

#[test]
fn one_service_uses_at_most_half_of_the_memory_and_a_quarter_of_the_files() {
    assert_eq!(budget(100, 1000).service_max(), Cost::new(25, 500));
    assert_eq!(budget(3, 1).service_max(), Cost::new(1, 1));
}

#[test]
fn resident_memory_counts_while_traffic_uses_its_share() {
    let budget = budget(100, 1000);
    budget.note_resident(950);
    assert!(!budget.is_pressed() && budget.charge(Cost::new(0, 250)), "the rest of the process is large");
    budget.note_resident(950);
    assert!(budget.is_pressed() && budget.is_exhausted());
    budget.note_resident(850);
    assert!(budget.is_pressed() && !budget.is_exhausted());
    budget.note_resident(750);
    assert!(!budget.is_pressed());
}
