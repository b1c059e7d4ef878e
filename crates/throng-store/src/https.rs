//! The HTTP client of object stores: hyper with rustls and ring, as in the rest of the tree.

use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as Tcp;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    ClientConfigKey, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use tokio::time::timeout;
use tokio_rustls::rustls::crypto::ring;

/// An answer begins within this time, or the request is tried again.
const ANSWER: Duration = Duration::from_secs(60);
const CONNECT: Duration = Duration::from_secs(10);
const KEPT_FOR: Duration = Duration::from_secs(30);

/// Makes clients that trust Mozilla's roots.
#[derive(Debug)]
pub(crate) struct Https;

impl HttpConnector for Https {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let failed = |source| object_store::Error::Generic { store: "https", source: Box::new(source) };
        let mut tcp = Tcp::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.set_nodelay(true);
        let builder =
            HttpsConnectorBuilder::new().with_provider_and_webpki_roots(ring::default_provider()).map_err(failed)?;
        let allows_http = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|value| value == "true");
        let builder = if allows_http { builder.https_or_http() } else { builder.https_only() };
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(KEPT_FOR)
            .pool_timer(TokioTimer::new())
            .build(builder.enable_http1().wrap_connector(tcp));
        Ok(HttpClient::new(Service(client)))
    }
}

#[derive(Debug)]
struct Service(Client<HttpsConnector<Tcp>, HttpRequestBody>);

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answer = timeout(ANSWER, self.0.request(request)).await;
        let answer = answer.map_err(|late| HttpError::new(HttpErrorKind::Timeout, late))?;
        let answer = answer.map_err(|error| {
            let kind = if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Request };
            HttpError::new(kind, error)
        })?;
        Ok(answer
            .map(|body| HttpResponseBody::new(body.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error)))))
    }
}
