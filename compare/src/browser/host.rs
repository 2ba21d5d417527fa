//! Hosts of pages: Chromium on this machine, or a device that a person opened the page on.

use serde_json::{Value, json};

use super::{chromium::Chromium, device::Device, error::BrowserError};
use report::result::{BrowserSoftware, DEVICE};

/// A host of pages.
#[derive(Debug)]
pub(crate) enum Host {
    /// Chromium on this machine, and where the page is.
    Chromium(Box<Chromium>, String),
    /// A device that a person opened the page on.
    Device(Box<Device>),
}

impl Host {
    /// Browser and system of the host, of which a page says `about`.
    pub(crate) async fn software(&mut self, about: &Value) -> Result<BrowserSoftware, BrowserError> {
        let failed =
            |why: &str| BrowserError::Page { expression: "bench.about()".to_owned(), why: why.to_owned() };
        let clock_ns = about["clock_ms"].as_f64().map_or(0, |milliseconds| whole(milliseconds * 1e6));
        if clock_ns == 0 {
            return Err(failed("it does not say how its clock moves"));
        }
        let has_to_hex = about["has_to_hex"] == json!(true);
        match self {
            Host::Chromium(chromium, _) => {
                let version = chromium.call("Browser.getVersion", json!({})).await?;
                let of = |name: &str| version[name].as_str().unwrap_or("unknown").to_owned();
                if about["isolated"] != json!(true) {
                    return Err(failed("it is not isolated, so that its clock is too coarse"));
                }
                Ok(BrowserSoftware {
                    client: "browser".to_owned(),
                    product: of("product"),
                    v8: of("jsVersion"),
                    user_agent: of("userAgent"),
                    flags: chromium.flags.clone(),
                    sandbox: chromium.is_sandboxed(),
                    has_to_hex,
                    clock_ns: Some(clock_ns),
                })
            }
            Host::Device(device) => {
                device.clock_ns = clock_ns;
                let user_agent = text(&about["user_agent"]);
                Ok(BrowserSoftware {
                    client: DEVICE.to_owned(),
                    product: user_agent.clone(),
                    v8: "unknown".to_owned(),
                    user_agent,
                    flags: Vec::new(),
                    sandbox: false,
                    has_to_hex,
                    clock_ns: Some(clock_ns),
                })
            }
        }
    }

    /// Shows a person what is measured, where one looks.
    pub(crate) async fn show(&mut self, progress: Value) -> Result<(), BrowserError> {
        match self {
            Host::Chromium(..) => Ok(()),
            Host::Device(device) => device.show(progress).await,
        }
    }

    /// Ends the browser, or the connection with words for the person.
    pub(crate) async fn stop(self, words: &'static str) {
        match self {
            Host::Chromium(chromium, _) => chromium.stop().await,
            Host::Device(device) => device.stop(words).await,
        }
    }
}

/// A text; empty where there is none.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A count or nanoseconds, which are neither negative nor beyond 2^53.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
pub(crate) fn whole(value: f64) -> u64 {
    value.clamp(0.0, 9e15) as u64
}
