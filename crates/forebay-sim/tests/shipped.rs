//! Every shipped scenario passes, and takes the same course twice. Whole, and so for optimised builds.

use forebay_sim::{Scenario, run, shipped};

#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "a simulated day takes minutes without optimisation; ./test runs it with"
)]
fn all_pass_and_repeat() {
    for shipped in shipped() {
        let scenario = Scenario::parse(shipped.name, shipped.text, &[]).expect("it makes sense");
        let simulate = || run(&scenario, scenario.seed, &mut ()).expect("nobody breaks it off");
        let (first, second) = (simulate(), simulate());
        assert!(first.passed(), "{first}");
        assert_eq!(first.trace_hash, second.trace_hash, "{}", shipped.name);
        assert_eq!(first.events, second.events, "{}", shipped.name);
    }
}

#[test]
fn each_says_what_it_is_about() {
    for shipped in shipped() {
        assert!(shipped.about().ends_with('.') && shipped.about().len() > 20, "{}", shipped.name);
    }
}

#[test]
fn the_region_is_as_large_as_it_says() {
    let region = shipped().iter().find(|shipped| shipped.name == "region-10k").expect("it is shipped");
    let scenario = Scenario::parse(region.name, region.text, &[]).expect("it makes sense");
    assert_eq!((scenario.services.len(), scenario.target()), (200, 10_000));
    assert_eq!(scenario.duration.as_secs(), 24 * 3600);
}
