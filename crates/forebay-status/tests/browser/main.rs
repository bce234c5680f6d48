//! The page in a real browser. One browser serves all checks: its start is the expensive part.
//!
//! Screenshots are left in `CARGO_TARGET_TMPDIR`. With `FOREBAY_UPDATE_IMAGES=1`, the test also rewrites
//! `docs/images/status-page.png`.

mod devtools;
mod world;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use devtools::Browser;
use forebay::memory::Answer;
use forebay_status::{Listen, StatusPage, Token};
use serde_json::Value;
use world::World;

/// The picture in the README is not to slow it down.
const LARGEST_IMAGE: usize = 150_000;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("status_page")
}

/// The page at each size and in each scheme: facts about it, and a screenshot.
fn look(browser: &Browser, world: &World, state: &str) {
    for (width, scheme) in [(1_600, "light"), (1_600, "dark"), (360, "light"), (360, "dark"), (820, "light")]
    {
        // A page that hears nothing for some seconds turns grey.
        world.pass(0.5);
        browser.dress(width, 1_000, scheme);
        let facts = browser.evaluate(include_str!("check.js"));
        let at = format!("{state}, {width} px, {scheme}");
        assert_eq!(facts["overflow"], 0, "{at}: {facts:#}");
        for none in ["stickingOut", "lowContrast", "paleMarks"] {
            assert_eq!(facts[none], Value::Array(Vec::new()), "{at}: {none}");
        }
        assert_eq!((&facts["skippedHeadings"], &facts["noCharts"]), (&0.into(), &0.into()), "{at}");
        assert_eq!(facts["landmarks"].as_array().map(Vec::len), Some(4), "{at}: {facts:#}");
        assert_eq!(facts["dark"], scheme == "dark", "{at}");
        let shot = browser.screenshot(None);
        fs::write(folder().join(format!("{state}-{width}-{scheme}.png")), shot).expect("written");
    }
    browser.dress(1_280, 900, "light");
}

const SENTENCE: &str = "document.querySelector('#sentence').textContent";

#[test]
fn the_page_in_a_browser() {
    let browser = Browser::start(&folder());
    let mut world = World::new();
    world.pass(360.0);
    let address = format!("http://{}/", world.address);
    browser.dress(1_280, 900, "light");
    browser.open_page(&address);

    loads(&browser, &world);
    look(&browser, &world, "quiet");
    updates(&browser, &world);
    shows_an_incident_and_its_recovery(&browser, &world);
    the_keyboard_reaches_everything(&browser, &world);
    every_control_has_a_name(&browser);
    does_not_grow(&browser, &world);

    assert_eq!(browser.complaints(), [""; 0], "the console");
    let strangers: Vec<_> = browser
        .requests()
        .into_iter()
        .filter(|url| !url.starts_with(&address) && !url.starts_with("data:"))
        .collect();
    assert_eq!(strangers, [""; 0], "requests to others");

    says_when_it_is_cut_off(&browser, &mut world);
    a_token_opens_the_page_and_its_stream(&browser);
    image_for_the_readme(&browser);
}

fn loads(browser: &Browser, world: &World) {
    browser.wait_for(&format!("{SENTENCE}.includes('full:')"));
    let text = browser.text("body").to_lowercase();
    for part in [
        "orders",
        "search",
        "reports",
        "in use",
        "ages of connections",
        "server limit",
        "6,1",
        "of 10,000",
        "token",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let points =
        browser.evaluate("document.querySelector('#levels .f-use').getAttribute('d').split('L').length");
    assert!(
        points.as_u64().is_some_and(|points| points > 1_000),
        "five minutes of history at once: {points}"
    );
    world.page.note("deployed <img src=x onerror=\"console.error('markup')\"> 2.4");
}

/// A change is on the page soon after its sample.
fn updates(browser: &Browser, world: &World) {
    world.pass(0.5);
    browser.wait_for("document.querySelector('#events').innerText.includes('onerror')");
    let found = browser.evaluate("document.querySelectorAll('#events img').length");
    assert_eq!(found, 0, "data is text, not markup");
    let before = browser.evaluate("document.querySelector('#levels .f-use').getAttribute('d')");
    let began = browser.evaluate("performance.now()");
    world.orders.resize(49).expect("resized");
    world.pass(0.5);
    browser
        .wait_for("document.querySelector('#events').innerText.includes('max_open changed from 50 to 49')");
    let took =
        browser.evaluate("performance.now()").as_f64().zip(began.as_f64()).map(|(end, began)| end - began);
    println!("a change was on the page within {:.0} ms", took.unwrap_or(f64::NAN));
    assert_ne!(before, browser.evaluate("document.querySelector('#levels .f-use').getAttribute('d')"));
    world.orders.resize(50).expect("resized");
    world.pass(5.0);
}

fn shows_an_incident_and_its_recovery(browser: &Browser, world: &World) {
    world.server.open_time(Duration::from_secs(8));
    world.page.note("incident: every session is cut");
    world.server.kill_all();
    world.pass(4.0);
    browser.wait_for("document.querySelector('#sentence').className === 'bad'");
    let sentence = browser.text("#sentence");
    assert!(sentence.contains("callers wait: 0 of 50 usable"), "{sentence}");
    let events = browser.text("#events");
    assert!(events.contains("connections died") && events.contains("below the low watermark"), "{events}");
    let said = browser.evaluate("document.querySelector('#announce').textContent");
    assert!(
        said.as_str().is_some_and(|said| said.starts_with("orders: ")),
        "a screen reader hears of it: {said}"
    );
    look(browser, world, "incident");

    world.server.open_time(Duration::from_millis(150));
    world.pass(2.0);
    browser.wait_for(&format!(
        "{SENTENCE}.match(/refilling at .*, limited by the local rate limit; .* to target$/)"
    ));
    look(browser, world, "recovery");

    world.pass(12.0);
    browser.wait_for(&format!("{SENTENCE}.includes('full:')"));
    assert!(browser.text("#events").contains("refilled after"));

    // Opens that fail are named with what the server says.
    world.server.on_open(Answer::Fail(forebay::Failure::Throttled));
    world.server.kill_all();
    world.pass(4.0);
    browser.wait_for(&format!("{SENTENCE}.includes('opens fail (throttled: told to fail)')"));
    world.server.on_open(Answer::Well);
    world.pass(40.0);
    browser.wait_for(&format!("{SENTENCE}.includes('full:')"));
}

/// A browser that was given the token sends it with the stream, too.
fn a_token_opens_the_page_and_its_stream(browser: &Browser) {
    let host = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let host = host.expect("a runtime");
    let token = Token::new("0123456789abcdef").expect("a token");
    let listen = Listen::new(([0, 0, 0, 0], 0).into()).token(token);
    let server = host.block_on(StatusPage::new().serve(listen)).expect("a server");
    browser.open_page(&format!("http://anyone:0123456789abcdef@127.0.0.1:{}/", server.address().port()));
    browser.wait_for("!document.querySelector('#none').hidden");
    assert!(browser.text("#process").contains("0 pools, not ready"));
}

/// A picture of a recovery, if it is asked for.
fn image_for_the_readme(browser: &Browser) {
    if std::env::var_os("FOREBAY_UPDATE_IMAGES").is_none() {
        return;
    }
    let world = World::new();
    world.pass(240.0);
    world.page.note("deployed 2.4.0");
    world.pass(66.0);
    world.server.kill_all();
    world.pass(95.0);
    world.server.open_time(Duration::from_secs(4));
    world.server.kill_all();
    world.pass(4.0);
    world.server.open_time(Duration::from_millis(150));
    world.pass(2.5);
    browser.dress(1_280, 900, "light");
    browser.open_page(&format!("http://{}/", world.address));
    browser.wait_for(&format!("{SENTENCE}.includes('refilling at')"));
    let shot = browser.screenshot(Some(650));
    assert!(shot.len() < LARGEST_IMAGE, "{} bytes", shot.len());
    let image = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/images/status-page.png");
    fs::write(image, shot).expect("written");
}

fn the_keyboard_reaches_everything(browser: &Browser, world: &World) {
    world.pass(0.5);
    browser.evaluate("document.activeElement.blur(), scrollTo(0, 0), 0");
    let focused = "(() => { const at = document.activeElement; if (at === document.body) return ''; \
        return at.id || at.closest('figure')?.id || at.innerText.trim().split('\\n')[0]; })()";
    let mut reached = Vec::new();
    for _ in 0..20 {
        browser.press("Tab");
        let at = browser.evaluate(focused).as_str().unwrap_or_default().to_owned();
        if at == "levels" {
            browser.press("ArrowLeft");
            let hair = browser.evaluate("document.querySelector('#levels .when').textContent");
            assert!(hair.as_str().is_some_and(|text| text.len() == 8), "the time of what is shown: {hair}");
        }
        let outline = browser.evaluate("getComputedStyle(document.activeElement).outlineStyle");
        assert!(at.is_empty() || outline != "none", "{at}: one sees where one is");
        reached.push(at);
    }
    for part in [
        "Skip to the pool",
        "levels",
        "opens",
        "waiting",
        "ages",
        "events",
        "to-status",
        "to-metrics",
        "to-ready",
    ] {
        assert!(reached.iter().any(|at| at == part), "{part} in {reached:?}");
    }
    let links = browser.evaluate("document.querySelectorAll('nav a').length");
    assert_eq!(links, 3);

    // Enter on the row of a pool chooses it, and its address remembers that.
    browser.evaluate("document.querySelectorAll('nav a')[2].focus(), 0");
    browser.press("Enter");
    browser.wait_for(
        "document.querySelector('#name').textContent === 'search' && location.hash === '#pool=search'",
    );
    assert_eq!(
        browser.evaluate("document.querySelector('nav a[aria-current]').textContent.includes('search')"),
        true
    );
    assert_eq!(browser.evaluate("document.querySelector('#fleet').hidden"), true, "it shares no budget");
    browser.evaluate("location.hash = '#pool=orders', 0");
    browser.wait_for("document.querySelector('#name').textContent === 'orders'");
}

fn every_control_has_a_name(browser: &Browser) {
    let tree = browser.call("Accessibility.getFullAXTree", serde_json::json!({}));
    let nodes = tree["nodes"].as_array().expect("nodes");
    let is_focusable = |node: &&Value| {
        let properties = node["properties"].as_array().into_iter().flatten();
        properties
            .filter(|property| property["name"] == "focusable")
            .any(|property| property["value"]["value"] == true)
    };
    let needs_name = |node: &&Value| {
        let role = node["role"]["value"].as_str().unwrap_or_default();
        is_focusable(node) && !matches!(role, "RootWebArea" | "main" | "generic")
            || matches!(role, "image" | "img" | "link" | "button")
    };
    let (mut named, mut nameless) = (0, Vec::new());
    for node in nodes.iter().filter(|node| node["ignored"] == false).filter(needs_name) {
        match node["name"]["value"].as_str() {
            Some(name) if !name.is_empty() => named += 1,
            _ => nameless.push(node.to_string()),
        }
    }
    assert_eq!(nameless, [""; 0]);
    assert!(named > 10, "{named} controls and pictures");
}

/// A page that is left open has as many elements as before.
fn does_not_grow(browser: &Browser, world: &World) {
    for number in 0..250 {
        world.page.note(format!("note {number}"));
    }
    world.pass(0.5);
    browser.wait_for("document.querySelectorAll('#events li').length === 200");
    let before = browser.evaluate(include_str!("check.js"))["elements"].clone();
    for _ in 0..3 {
        world.server.kill_all();
        world.pass(15.0);
        browser.wait_for(&format!("{SENTENCE}.includes('full:')"));
    }
    let after = browser.evaluate(include_str!("check.js"))["elements"].clone();
    assert!(after.as_u64() <= before.as_u64().map(|before| before + 10), "{before} became {after}");
}

fn says_when_it_is_cut_off(browser: &Browser, world: &mut World) {
    world.pass(0.5);
    browser.wait_for("document.querySelector('#lost').hidden");
    world.stop_serving();
    browser.wait_for("!document.querySelector('#lost').hidden && document.querySelector('#lost').innerText.includes('Connection lost')");
    fs::write(folder().join("lost-1280-light.png"), browser.screenshot(Some(500))).expect("written");
    world.serve();
    world.pass(0.5);
    browser.wait_for("document.querySelector('#lost').hidden");
}
