//! The program `forebay-bench`.

fn main() -> anyhow::Result<()> {
    forebay_bench::run()
}
