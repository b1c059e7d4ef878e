//! Where a store is: a folder, or a bucket with a prefix.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, Checksum};
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, RetryConfig};

use crate::StoreError;
use crate::https::Https;

/// A request is tried again so often, and no longer than so.
const RETRIES: usize = 5;
const RETRY_FOR: Duration = Duration::from_secs(60);

/// Variables that say how to sign requests. Without one of them, keys would be looked for on the network.
const KEYS: [&str; 5] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
];

/// An opened place.
pub(crate) struct Place {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) prefix: ObjectPath,
    /// The folder, if it is one.
    pub(crate) folder: Option<PathBuf>,
}

/// Whether `text` is the address of a store, as `s3://bucket` or `file:///folder`, and no plain folder.
pub fn is_address(text: &str) -> bool {
    text.contains("://")
}

fn wrong(place: &str, reason: impl Into<String>) -> StoreError {
    StoreError::Place { place: place.to_owned(), reason: reason.into() }
}

/// The folder of a place that is one.
pub(crate) fn folder(place: &str) -> Result<Option<&Path>, StoreError> {
    match place.strip_prefix("file://") {
        Some(path) if path.starts_with('/') => Ok(Some(Path::new(path))),
        Some(_) => Err(wrong(place, "write it as file:///folder, with three slashes")),
        None if is_address(place) => Ok(None),
        None => Ok(Some(Path::new(place))),
    }
}

pub(crate) fn open(place: &str) -> Result<Place, StoreError> {
    if let Some(folder) = folder(place)? {
        let objects = LocalFileSystem::new_with_prefix(folder);
        let objects = objects.map_err(|_| wrong(place, "there is no such folder; check its name"))?;
        return Ok(Place {
            objects: Arc::new(objects),
            prefix: ObjectPath::default(),
            folder: Some(folder.to_owned()),
        });
    }
    let Some(rest) = place.strip_prefix("s3://") else {
        return Err(wrong(place, "use a folder, file:///folder or s3://bucket/prefix"));
    };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(wrong(place, "the name of the bucket is missing: s3://bucket/prefix"));
    }
    if KEYS.iter().all(|name| std::env::var_os(name).is_none()) {
        return Err(wrong(
            place,
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_ENDPOINT_URL if it is not Amazon's",
        ));
    }
    let prefix = ObjectPath::parse(prefix.trim_end_matches('/')).map_err(|error| wrong(place, error.to_string()))?;
    let retry = RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_FOR, ..RetryConfig::default() };
    let objects = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_checksum_algorithm(Checksum::SHA256)
        .with_retry(retry)
        .with_http_connector(Https)
        .build()
        .map_err(|error| wrong(place, error.to_string()))?;
    Ok(Place { objects: Arc::new(objects), prefix, folder: None })
}
