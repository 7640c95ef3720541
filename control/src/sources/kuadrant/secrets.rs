//! The texts in Secrets that rules of policies show to servers. Only Secrets in the namespace of the policy are read.

use tidegate_config::model::auth::{ClientSecret, SecretText};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::SecretTexts;
use tidegate_config::project::kuadrant::RuleSecret;

use crate::attachment::Key;
use crate::sources::reader::Reader;

/// The entries of `credentialsRef`, as in Kuadrant.
const CLIENT_ID: &str = "clientID";
const CLIENT_SECRET: &str = "clientSecret";

/// A Secret of a policy, whose texts are read.
pub(super) struct PolicySecret<'s> {
    pub(super) policy: &'s ObjectName,
    pub(super) named: &'s RuleSecret,
}

impl PolicySecret<'_> {
    /// The credentials of a client.
    ///
    /// # Errors
    /// The reason why there are none.
    pub(super) fn client(&self, reader: &mut Reader<'_>) -> Result<ClientSecret, String> {
        Ok(ClientSecret { id: self.text(reader, CLIENT_ID)?, secret: self.text(reader, CLIENT_SECRET)? })
    }

    /// The entry that is named.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(super) fn entry(&self, reader: &mut Reader<'_>) -> Result<SecretText, String> {
        match self.named {
            RuleSecret::Entry { key, .. } => self.text(reader, key),
            RuleSecret::Client(_) => self.text(reader, CLIENT_SECRET),
        }
    }

    fn text(&self, reader: &mut Reader<'_>, key: &str) -> Result<SecretText, String> {
        let name = ObjectName::new(self.policy.namespace.clone(), self.named.name().clone());
        let shown = format!("{} {name}", Kind::Secret);
        reader.note(Key::Object(ObjectRef::new(Kind::Secret, name.clone())));
        let secret = reader.world().secrets.get(&name).ok_or_else(|| format!("{shown} does not exist"))?;
        secret.texts.get(key).cloned().ok_or_else(|| format!("{key} of {shown} {}", SecretTexts::FAULT))
    }
}
