//! Responses of HTTP/2 endpoints to HTTP/1.0 clients. Pingora sends a body of unknown length in chunks to every client,
//! and decides that after all filters except those of its modules.

use std::any::Any;

use async_trait::async_trait;
use http::Version;
use http::header::TRANSFER_ENCODING;
use pingora::Result;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::{HttpModule, HttpModuleBuilder, Module};

/// Creates a module for each request.
#[derive(Debug)]
pub(super) struct NoChunks;

impl HttpModuleBuilder for NoChunks {
    fn init(&self) -> Module {
        Box::new(OfRequest { is_before_http11: false })
    }
}

/// Removes chunked coding for clients without it: their body ends with the connection (RFC 9112 section 6.1).
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
