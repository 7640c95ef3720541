//! Authentication and authorisation of requests: who is the client, may it do this, and what the endpoint is told.
//!
//! An AuthPolicy is a set of rules. The rules of a path come from one or several policies, and run in phases: the first
//! authentication rule that succeeds gives the identity, then more facts are fetched, then all authorisation rules must
//! pass, then headers for the endpoint are made. Whatever cannot be decided refuses the request.
//!
//! Rules may need answers of servers. A decision without them says which calls it needs, and is made again with their
//! answers; it is a pure function of the request, the rules and the answers so far.

mod authentication;
mod call;
mod condition;
mod credentials;
mod denial;
mod document;
mod evaluate;
mod jwt;
mod parts;
mod rule;
mod success;
mod value;

#[cfg(test)]
mod tests;

pub use authentication::{ApiKeyHash, ApiKeys, Authentication, AuthenticationMethod, Credentials};
pub use call::{
    AccessAttributes, AccessReview, AccessReviewRule, AuthCache, AuthCall, CALL_TIMEOUT, CacheKey, CallAnswer,
    CallBody, CallCredential, CallCredentialSource, CallFault, CallPath, CallPhase, CallPlace, CallServer,
    ClientCredentials, ClientSecret, HttpCall, HttpRule, Introspection, KeptAnswer, PathPiece, PlacedCall, ReplyForm,
    SecretText, TokenFor, TokenReview, UserInfo,
};
pub use condition::{AuthCondition, Operator, Pattern};
pub use denial::{AuthDenial, AuthRefusal, Denial};
pub use document::AuthDocument;
pub use evaluate::{AuthFacts, AuthGrant, AuthResult, AuthRuleName};
pub use jwt::{Jwt, KeySet, KeySetFault, KeySource, TokenFault, VerifiedToken};
pub use rule::{AuthEntry, AuthRule, Authorization, Metadata, PathAuth, RuleId, UnusableRule};
pub use success::{Success, SuccessForm, SuccessTarget};
pub use value::AuthValue;
