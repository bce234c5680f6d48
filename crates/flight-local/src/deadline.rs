//! The deadline of a call, from its gRPC headers.

use std::sync::Arc;
use std::time::Duration;

use tonic::metadata::MetadataMap;

use crate::execution::Execution;
use crate::race::unless;
use crate::runtime;

/// The remaining time of a call, if the client has set a deadline.
pub(crate) fn time_left(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number.saturating_mul(3_600)),
        "M" => Duration::from_secs(number.saturating_mul(60)),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// Interrupts a statement at the deadline of its call. Tonic checks the deadline only until the answer
/// begins, and not while the client reads nothing.
pub(crate) fn interrupt_after(time: Duration, run: &Arc<Execution>) {
    let run = run.clone();
    runtime::spawn(async move {
        if unless(run.ended(), runtime::sleep(time)).await.is_none() {
            run.cancel();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grpc_timeout_is_a_number_and_a_unit() {
        let left = |text: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", text.parse().unwrap());
            time_left(&metadata)
        };
        assert_eq!(left("250m"), Some(Duration::from_millis(250)));
        assert_eq!(left("2H"), Some(Duration::from_secs(7_200)));
        assert_eq!(left("99999999n"), Some(Duration::from_nanos(99_999_999)));
        for nonsense in ["", "m", "1", "1d", "-1S", "1.5S"] {
            assert_eq!(left(nonsense), None, "{nonsense}");
        }
        assert_eq!(time_left(&MetadataMap::new()), None);
    }
}
