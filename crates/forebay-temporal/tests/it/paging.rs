//! Reading lists page by page.

use forebay_temporal::{Page, PageToken, Result};

/// All rows of a list, from the first to the last page. Every page but the last is full, and the last is not empty unless the list is.
pub(crate) async fn all<T>(
    size: usize,
    page: impl AsyncFn(usize, Option<&PageToken>) -> Result<Page<T>>,
) -> Vec<T> {
    let mut found = page(size, None).await.unwrap();
    let mut rows = Vec::new();
    while let Some(next) = found.next {
        assert_eq!(found.rows.len(), size);
        rows.append(&mut found.rows);
        assert!(rows.len() < 1_000, "the list does not end");
        // Tokens travel as bytes.
        let token = PageToken::from_bytes(next.as_bytes());
        found = page(size, Some(&token)).await.unwrap();
        assert!(!found.rows.is_empty(), "a token is only given if there are more");
    }
    rows.append(&mut found.rows);
    rows
}

/// Pages of no rows, and tokens that are none, are refused with a remedy.
pub(crate) async fn refuses_nonsense<T: std::fmt::Debug>(
    page: impl AsyncFn(usize, Option<&PageToken>) -> Result<Page<T>>,
) {
    let none = page(0, None).await.unwrap_err();
    assert!(none.to_string().contains("ask for 1 at least"), "{none}");
    let strange = page(1, Some(&PageToken::from_bytes("strange"))).await.unwrap_err();
    assert!(strange.to_string().contains("begin with the first page"), "{strange}");
}
