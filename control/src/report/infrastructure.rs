//! The single worker that creates Services for Gateways: for one Gateway after another, it gets the desired objects,
//! reads the existing ones, and writes the differences.

use serde::de::IgnoredAny;
use serde_json::Value;
use tidegate_config::object::{Kind, ObjectName, ObjectRef, Uid};
use tokio::time::sleep;

use super::send::{NotWritten, outcome};
use super::service;
use super::{LOOK_PAUSE, Leadership, PAUSE, Reporter};
use crate::attachment::{Endpoints, GatewayInfrastructure};
use crate::queue::Lane;
use crate::reconcile::DesiredInfrastructure;

impl Reporter {
    /// Writes the desired objects while the queue exists.
    pub(super) async fn make(&self, lead: &Leadership) {
        let queue = &self.view.reports.gateways;
        while let Some(gateway) = queue.get().await {
            self.retry_after.over().await;
            sleep(LOOK_PAUSE).await;
            let made = match self.view.desired_infrastructure(gateway.clone()).await {
                Some(made) => self.make_for(&gateway, &made, lead).await,
                None => Ok(0),
            };
            match made {
                Ok(writes) => {
                    self.unwritten_infrastructure.over();
                    gateway.succeeded();
                    if writes > 0 {
                        sleep(PAUSE).await;
                    }
                }
                Err(refusal) => {
                    self.metrics.services.with_label_values(&[outcome::<()>(&Err(refusal.clone()))]).inc();
                    if let NotWritten::Throttled(time) = refusal {
                        self.retry_after.begin(time);
                        queue.add_after(gateway.clone(), time, Lane::Slow);
                        gateway.succeeded();
                    } else {
                        self.unwritten_infrastructure.again(
                            "the Service of a Gateway could not be written",
                            &*gateway,
                            &refusal,
                        );
                        gateway.retry();
                    }
                }
            }
        }
    }

    /// Applies the desired objects of a Gateway; returns the number of writes.
    async fn make_for(
        &self,
        gateway: &ObjectRef,
        made: &DesiredInfrastructure,
        lead: &Leadership,
    ) -> Result<usize, NotWritten> {
        let mut writes = 0;
        for (name, uid) in &made.stale {
            let Some(current) = self.read(Kind::Service, name, lead).await? else { continue };
            if service::is_ours(&current, *uid, &made.controller) {
                writes += self.delete(Kind::Service, name, &current, lead).await?;
            }
        }
        let Some((uid, desired)) = &made.desired else { return Ok(writes) };
        let (service, written) = self.make_service(gateway, (*uid, &made.controller), desired, lead).await?;
        Ok(writes + written + self.make_slices(desired, &service, lead).await?)
    }

    /// Applies the Service; returns it, with the number of writes.
    async fn make_service(
        &self,
        gateway: &ObjectRef,
        (uid, controller): (Uid, &str),
        made: &GatewayInfrastructure,
        lead: &Leadership,
    ) -> Result<(Value, usize), NotWritten> {
        let (name, desired) = (&made.service, service::service(&gateway.name, uid, made));
        let (mut current, mut writes) = (self.read(Kind::Service, name, lead).await?, 0);
        if current.as_ref().is_some_and(|current| !service::is_ours(current, uid, controller)) {
            let why = format!("Service {name} already exists and does not belong to this Gateway");
            return Err(NotWritten::Refused(why));
        }
        if let Some(old) = current.take_if(|current| service::must_go(current, &desired)) {
            writes += self.delete(Kind::Service, name, &old, lead).await?;
        }
        match current {
            Some(current) if !service::differs(&current, &desired) => Ok((current, writes)),
            current => {
                let uid = current.as_ref().and_then(service::uid_of);
                let applied = service::apply(Kind::Service, name, desired, uid);
                let current = self.send::<Value>(lead, applied).await?;
                self.wrote();
                Ok((current, writes + 1))
            }
        }
    }

    async fn make_slices(
        &self,
        made: &GatewayInfrastructure,
        service: &Value,
        lead: &Leadership,
    ) -> Result<usize, NotWritten> {
        let uid = service::uid_of(service).unwrap_or_default();
        let edge = match &made.endpoints {
            Endpoints::Of(edge) => self.slices_of(edge, lead).await?,
            Endpoints::At(_) => Vec::new(),
        };
        let mut existing = self.slices_of(&made.service, lead).await?;
        existing.retain(service::is_our_slice);
        let mut writes = 0;
        for (name, desired) in service::slices(made, uid, &edge) {
            let index = existing.iter().position(|slice| slice["metadata"]["name"] == *name.name);
            let current = index.map(|index| existing.swap_remove(index));
            if current.as_ref().is_some_and(|current| !service::differs(current, &desired)) {
                continue;
            }
            let uid = current.as_ref().and_then(service::uid_of);
            let applied = service::apply(Kind::EndpointSlice, &name, desired, uid);
            self.send::<IgnoredAny>(lead, applied).await?;
            self.wrote();
            writes += 1;
        }
        for slice in existing {
            let name = made.service.beside(slice["metadata"]["name"].as_str().unwrap_or_default());
            writes += self.delete(Kind::EndpointSlice, &name, &slice, lead).await?;
        }
        Ok(writes)
    }

    /// An object, if it exists.
    async fn read(&self, kind: Kind, name: &ObjectName, lead: &Leadership) -> Result<Option<Value>, NotWritten> {
        match self.send::<Value>(lead, service::get(kind, name)).await {
            Ok(object) => Ok(Some(object)),
            Err(NotWritten::Gone) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    async fn slices_of(&self, service: &ObjectName, lead: &Leadership) -> Result<Vec<Value>, NotWritten> {
        let mut list = self.send::<Value>(lead, service::slices_of(service)).await?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    async fn delete(
        &self,
        kind: Kind,
        name: &ObjectName,
        current: &Value,
        lead: &Leadership,
    ) -> Result<usize, NotWritten> {
        let Some(uid) = service::uid_of(current) else { return Ok(0) };
        match self.send::<IgnoredAny>(lead, service::delete(kind, name, uid)).await {
            Ok(IgnoredAny) => {
                self.wrote();
                Ok(1)
            }
            Err(NotWritten::Gone) => Ok(0),
            Err(refusal) => Err(refusal),
        }
    }

    fn wrote(&self) {
        self.metrics.services.with_label_values(&[outcome::<()>(&Ok(()))]).inc();
    }
}
