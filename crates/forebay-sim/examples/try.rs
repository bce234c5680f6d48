//! try
fn main() {
    let name = std::env::args().nth(1).unwrap();
    let sets: Vec<String> = std::env::args().skip(2).collect();
    let s = forebay_sim::shipped().iter().find(|s| s.name == name).unwrap();
    let sc = match forebay_sim::Scenario::parse(&name, s.text, &sets) {
        Ok(s) => s,
        Err(e) => {
            println!("{e}");
            std::process::exit(2)
        }
    };
    println!("{}", forebay_sim::run(&sc, sc.seed, &mut ()).unwrap());
}
