//! Responses of HTTP/2 endpoints to clients of HTTP/1.0. Pingora sends a body of unknown length in chunks, whatever the client speaks,
//! and decides that behind every filter but those of its modules.

use std::any::Any;

use async_trait::async_trait;
use http::Version;
use http::header::TRANSFER_ENCODING;
use pingora::Result;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::{HttpModule, HttpModuleBuilder, Module};

/// Makes one for each request.
#[derive(Debug)]
pub(super) struct NoChunks;

impl HttpModuleBuilder for NoChunks {
    fn init(&self) -> Module {
        Box::new(OfRequest { is_before_http11: false })
    }
}

/// Takes chunks away from clients that know none: their body ends with the connection (RFC 9112 section 6.1).
#[derive(Debug)]
struct OfRequest {
    is_before_http11: bool,
}

#[async_trait]
impl HttpModule for OfRequest {
    async fn request_header_filter(&mut self, request: &mut RequestHeader) -> Result<()> {
        self.is_before_http11 = request.version < Version::HTTP_11;
        Ok(())
    }

    async fn response_header_filter(&mut self, response: &mut ResponseHeader, _: bool) -> Result<()> {
        if self.is_before_http11 {
            response.remove_header(&TRANSFER_ENCODING);
        }
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
