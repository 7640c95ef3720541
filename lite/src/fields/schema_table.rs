//! The fields of the kinds, written small. One line a type: its name, then `field:type` for each field.
//!
//! A type is `string`, `string(A|B)` with the values that Kubernetes publishes for it, `int32`, `int64`, `bool`,
//! `intstr` (a number or a string), `bytes` (base64), `time` and `microtime` (RFC 3339), `quantity`, `any`, `[T]` a
//! list, `{T}` a map from strings, or the name of another line. `[T@key]` is a list that a strategic merge joins by
//! `key`, `[T+]` one that it joins as a set; `T^` keeps only the keys that a strategic patch names (`retainKeys`).

pub(super) const TABLE: &str = "
ObjectMeta name:string generateName:string namespace:string selfLink:string uid:string resourceVersion:string generation:int64 creationTimestamp:time deletionTimestamp:time deletionGracePeriodSeconds:int64 labels:{string} annotations:{string} ownerReferences:[OwnerReference@uid] finalizers:[string+] managedFields:[ManagedFieldsEntry]
ManagedFieldsEntry apiVersion:string fieldsType:string fieldsV1:any manager:string operation:string subresource:string time:time
OwnerReference apiVersion:string kind:string name:string uid:string controller:bool blockOwnerDeletion:bool
Condition type:string status:string observedGeneration:int64 lastTransitionTime:time reason:string message:string
LocalObjectReference name:string
ObjectReference kind:string namespace:string name:string uid:string apiVersion:string resourceVersion:string fieldPath:string
TypedLocalObjectReference apiGroup:string kind:string name:string
LabelSelector matchLabels:{string} matchExpressions:[LabelSelectorRequirement]
LabelSelectorRequirement key:string operator:string values:[string]

Namespace apiVersion:string kind:string metadata:ObjectMeta spec:NamespaceSpec status:NamespaceStatus
NamespaceSpec finalizers:[string]
NamespaceStatus phase:string(Active|Terminating) conditions:[NamespaceCondition@type]
NamespaceCondition type:string status:string lastTransitionTime:time reason:string message:string

Service apiVersion:string kind:string metadata:ObjectMeta spec:ServiceSpec status:ServiceStatus
ServiceSpec ports:[ServicePort@port] selector:{string} clusterIP:string clusterIPs:[string] type:string(ClusterIP|ExternalName|LoadBalancer|NodePort) externalIPs:[string] sessionAffinity:string(ClientIP|None) loadBalancerIP:string loadBalancerSourceRanges:[string] externalName:string externalTrafficPolicy:string(Cluster|Local) healthCheckNodePort:int32 publishNotReadyAddresses:bool sessionAffinityConfig:SessionAffinityConfig ipFamilies:[string(|IPv4|IPv6)] ipFamilyPolicy:string(PreferDualStack|RequireDualStack|SingleStack) allocateLoadBalancerNodePorts:bool loadBalancerClass:string internalTrafficPolicy:string(Cluster|Local) trafficDistribution:string
SessionAffinityConfig clientIP:ClientIPConfig
ClientIPConfig timeoutSeconds:int32
ServicePort name:string protocol:string(SCTP|TCP|UDP) appProtocol:string port:int32 targetPort:intstr nodePort:int32
ServiceStatus loadBalancer:LoadBalancerStatus conditions:[Condition@type]
LoadBalancerStatus ingress:[LoadBalancerIngress]
LoadBalancerIngress ip:string hostname:string ipMode:string ports:[PortStatus]
PortStatus port:int32 protocol:string(SCTP|TCP|UDP) error:string

Secret apiVersion:string kind:string metadata:ObjectMeta type:string immutable:bool data:{bytes} stringData:{string}
ConfigMap apiVersion:string kind:string metadata:ObjectMeta immutable:bool data:{string} binaryData:{bytes}

Event apiVersion:string kind:string metadata:ObjectMeta involvedObject:ObjectReference reason:string message:string source:EventSource firstTimestamp:time lastTimestamp:time count:int32 type:string eventTime:microtime series:EventSeries action:string related:ObjectReference reportingComponent:string reportingInstance:string
EventSource component:string host:string
EventSeries count:int32 lastObservedTime:microtime

Ingress apiVersion:string kind:string metadata:ObjectMeta spec:IngressSpec status:IngressStatus
IngressSpec ingressClassName:string defaultBackend:IngressBackend tls:[IngressTLS] rules:[IngressRule]
IngressBackend service:IngressServiceBackend resource:TypedLocalObjectReference
IngressServiceBackend name:string port:ServiceBackendPort
ServiceBackendPort name:string number:int32
IngressTLS hosts:[string] secretName:string
IngressRuleValue http:HTTPIngressRuleValue
IngressRule host:string http:HTTPIngressRuleValue
HTTPIngressRuleValue paths:[HTTPIngressPath]
HTTPIngressPath path:string pathType:string(Exact|ImplementationSpecific|Prefix) backend:IngressBackend
IngressStatus loadBalancer:IngressLoadBalancerStatus
IngressLoadBalancerStatus ingress:[IngressLoadBalancerIngress]
IngressLoadBalancerIngress hostname:string ip:string ports:[IngressPortStatus]
IngressPortStatus error:string port:int32 protocol:string(SCTP|TCP|UDP)
IngressClass apiVersion:string kind:string metadata:ObjectMeta spec:IngressClassSpec
IngressClassSpec controller:string parameters:IngressClassParametersReference
IngressClassParametersReference apiGroup:string kind:string name:string namespace:string scope:string

EndpointSlice apiVersion:string kind:string metadata:ObjectMeta addressType:string(FQDN|IPv4|IPv6) endpoints:[Endpoint] ports:[EndpointPort]
Endpoint addresses:[string] conditions:EndpointConditions hostname:string targetRef:ObjectReference deprecatedTopology:{string} nodeName:string zone:string hints:EndpointHints
EndpointHints forNodes:[ForNode] forZones:[ForZone]
ForNode name:string
ForZone name:string
EndpointConditions ready:bool serving:bool terminating:bool
EndpointPort name:string protocol:string(SCTP|TCP|UDP) port:int32 appProtocol:string

Lease apiVersion:string kind:string metadata:ObjectMeta spec:LeaseSpec
LeaseSpec holderIdentity:string leaseDurationSeconds:int32 acquireTime:microtime renewTime:microtime leaseTransitions:int32 strategy:string preferredHolder:string

CustomResourceDefinition apiVersion:string kind:string metadata:ObjectMeta spec:CustomResourceDefinitionSpec status:CustomResourceDefinitionStatus
CustomResourceDefinitionSpec group:string names:CustomResourceDefinitionNames scope:string versions:[CustomResourceDefinitionVersion] conversion:CustomResourceConversion preserveUnknownFields:bool
CustomResourceDefinitionNames plural:string singular:string shortNames:[string] kind:string listKind:string categories:[string]
CustomResourceDefinitionVersion name:string served:bool storage:bool deprecated:bool deprecationWarning:string schema:CustomResourceValidation subresources:CustomResourceSubresources additionalPrinterColumns:[CustomResourceColumnDefinition] selectableFields:[SelectableField]
CustomResourceValidation openAPIV3Schema:any
CustomResourceSubresources status:CustomResourceSubresourceStatus scale:CustomResourceSubresourceScale
CustomResourceSubresourceStatus
CustomResourceSubresourceScale specReplicasPath:string statusReplicasPath:string labelSelectorPath:string
CustomResourceColumnDefinition name:string type:string format:string description:string priority:int32 jsonPath:string
SelectableField jsonPath:string
CustomResourceConversion strategy:string webhook:WebhookConversion
WebhookConversion clientConfig:WebhookClientConfig conversionReviewVersions:[string]
WebhookClientConfig caBundle:bytes service:ServiceReference url:string
ServiceReference name:string namespace:string path:string port:int32
CustomResourceDefinitionStatus conditions:[CustomResourceDefinitionCondition] acceptedNames:CustomResourceDefinitionNames storedVersions:[string] observedGeneration:int64
CustomResourceDefinitionCondition type:string status:string lastTransitionTime:time observedGeneration:int64 reason:string message:string

Deployment apiVersion:string kind:string metadata:ObjectMeta spec:DeploymentSpec status:DeploymentStatus
DeploymentSpec replicas:int32 selector:LabelSelector template:PodTemplateSpec strategy:DeploymentStrategy^ minReadySeconds:int32 revisionHistoryLimit:int32 paused:bool progressDeadlineSeconds:int32
DeploymentStrategy type:string(Recreate|RollingUpdate) rollingUpdate:RollingUpdateDeployment
RollingUpdateDeployment maxUnavailable:intstr maxSurge:intstr
DeploymentStatus observedGeneration:int64 replicas:int32 updatedReplicas:int32 readyReplicas:int32 availableReplicas:int32 unavailableReplicas:int32 terminatingReplicas:int32 collisionCount:int32 conditions:[DeploymentCondition@type]
DeploymentCondition type:string status:string lastTransitionTime:time lastUpdateTime:time reason:string message:string
ReplicaSet apiVersion:string kind:string metadata:ObjectMeta spec:ReplicaSetSpec status:ReplicaSetStatus
ReplicaSetSpec replicas:int32 minReadySeconds:int32 selector:LabelSelector template:PodTemplateSpec
ReplicaSetStatus replicas:int32 fullyLabeledReplicas:int32 readyReplicas:int32 availableReplicas:int32 terminatingReplicas:int32 observedGeneration:int64 conditions:[ReplicaSetCondition@type]
ReplicaSetCondition type:string status:string lastTransitionTime:time reason:string message:string

Endpoints apiVersion:string kind:string metadata:ObjectMeta subsets:[EndpointSubset]
EndpointSubset addresses:[EndpointAddress] notReadyAddresses:[EndpointAddress] ports:[EndpointPort]
EndpointAddress hostname:string ip:string nodeName:string targetRef:ObjectReference

PersistentVolume apiVersion:string kind:string metadata:ObjectMeta spec:PersistentVolumeSpec status:PersistentVolumeStatus
PersistentVolumeSpec accessModes:[string(ReadOnlyMany|ReadWriteMany|ReadWriteOnce|ReadWriteOncePod)] awsElasticBlockStore:AWSElasticBlockStoreVolumeSource azureDisk:AzureDiskVolumeSource azureFile:AzureFilePersistentVolumeSource capacity:{quantity} cephfs:CephFSPersistentVolumeSource cinder:CinderPersistentVolumeSource claimRef:ObjectReference csi:CSIPersistentVolumeSource fc:FCVolumeSource flexVolume:FlexPersistentVolumeSource flocker:FlockerVolumeSource gcePersistentDisk:GCEPersistentDiskVolumeSource glusterfs:GlusterfsPersistentVolumeSource hostPath:HostPathVolumeSource iscsi:ISCSIPersistentVolumeSource local:LocalVolumeSource mountOptions:[string] nfs:NFSVolumeSource nodeAffinity:VolumeNodeAffinity persistentVolumeReclaimPolicy:string(Delete|Recycle|Retain) photonPersistentDisk:PhotonPersistentDiskVolumeSource portworxVolume:PortworxVolumeSource quobyte:QuobyteVolumeSource rbd:RBDPersistentVolumeSource scaleIO:ScaleIOPersistentVolumeSource storageClassName:string storageos:StorageOSPersistentVolumeSource volumeAttributesClassName:string volumeMode:string(Block|Filesystem) vsphereVolume:VsphereVirtualDiskVolumeSource
AzureFilePersistentVolumeSource readOnly:bool secretName:string secretNamespace:string shareName:string
CephFSPersistentVolumeSource monitors:[string] path:string readOnly:bool secretFile:string secretRef:SecretReference user:string
CinderPersistentVolumeSource fsType:string readOnly:bool secretRef:SecretReference volumeID:string
CSIPersistentVolumeSource controllerExpandSecretRef:SecretReference controllerPublishSecretRef:SecretReference driver:string fsType:string nodeExpandSecretRef:SecretReference nodePublishSecretRef:SecretReference nodeStageSecretRef:SecretReference readOnly:bool volumeAttributes:{string} volumeHandle:string
FlexPersistentVolumeSource driver:string fsType:string options:{string} readOnly:bool secretRef:SecretReference
GlusterfsPersistentVolumeSource endpoints:string endpointsNamespace:string path:string readOnly:bool
ISCSIPersistentVolumeSource chapAuthDiscovery:bool chapAuthSession:bool fsType:string initiatorName:string iqn:string iscsiInterface:string lun:int32 portals:[string] readOnly:bool secretRef:SecretReference targetPortal:string
LocalVolumeSource fsType:string path:string
VolumeNodeAffinity required:NodeSelector
RBDPersistentVolumeSource fsType:string image:string keyring:string monitors:[string] pool:string readOnly:bool secretRef:SecretReference user:string
ScaleIOPersistentVolumeSource fsType:string gateway:string protectionDomain:string readOnly:bool secretRef:SecretReference sslEnabled:bool storageMode:string storagePool:string system:string volumeName:string
StorageOSPersistentVolumeSource fsType:string readOnly:bool secretRef:ObjectReference volumeName:string volumeNamespace:string
SecretReference name:string namespace:string
PersistentVolumeStatus lastPhaseTransitionTime:time message:string phase:string(Available|Bound|Failed|Pending|Released) reason:string
PersistentVolumeClaim apiVersion:string kind:string metadata:ObjectMeta spec:PersistentVolumeClaimSpec status:PersistentVolumeClaimStatus
PersistentVolumeClaimSpec accessModes:[string(ReadOnlyMany|ReadWriteMany|ReadWriteOnce|ReadWriteOncePod)] dataSource:TypedLocalObjectReference dataSourceRef:TypedObjectReference resources:VolumeResourceRequirements selector:LabelSelector storageClassName:string volumeAttributesClassName:string volumeMode:string(Block|Filesystem) volumeName:string
TypedObjectReference apiGroup:string kind:string name:string namespace:string
VolumeResourceRequirements limits:{quantity} requests:{quantity}
PersistentVolumeClaimStatus accessModes:[string(ReadOnlyMany|ReadWriteMany|ReadWriteOnce|ReadWriteOncePod)] allocatedResourceStatuses:{string(ControllerResizeInProgress|ControllerResizeInfeasible|NodeResizeInProgress|NodeResizeInfeasible|NodeResizePending)} allocatedResources:{quantity} capacity:{quantity} conditions:[PersistentVolumeClaimCondition@type] currentVolumeAttributesClassName:string modifyVolumeStatus:ModifyVolumeStatus phase:string(Bound|Lost|Pending)
PersistentVolumeClaimCondition lastProbeTime:time lastTransitionTime:time message:string reason:string status:string type:string
ModifyVolumeStatus status:string(InProgress|Infeasible|Pending) targetVolumeAttributesClassName:string

ReplicationController apiVersion:string kind:string metadata:ObjectMeta spec:ReplicationControllerSpec status:ReplicationControllerStatus
ReplicationControllerSpec minReadySeconds:int32 replicas:int32 selector:{string} template:PodTemplateSpec
ReplicationControllerStatus availableReplicas:int32 conditions:[ReplicationControllerCondition@type] fullyLabeledReplicas:int32 observedGeneration:int64 readyReplicas:int32 replicas:int32
ReplicationControllerCondition lastTransitionTime:time message:string reason:string status:string type:string
DaemonSet apiVersion:string kind:string metadata:ObjectMeta spec:DaemonSetSpec status:DaemonSetStatus
DaemonSetSpec minReadySeconds:int32 revisionHistoryLimit:int32 selector:LabelSelector template:PodTemplateSpec updateStrategy:DaemonSetUpdateStrategy
DaemonSetUpdateStrategy rollingUpdate:RollingUpdateDaemonSet type:string(OnDelete|RollingUpdate)
RollingUpdateDaemonSet maxSurge:intstr maxUnavailable:intstr
DaemonSetStatus collisionCount:int32 conditions:[DaemonSetCondition@type] currentNumberScheduled:int32 desiredNumberScheduled:int32 numberAvailable:int32 numberMisscheduled:int32 numberReady:int32 numberUnavailable:int32 observedGeneration:int64 updatedNumberScheduled:int32
DaemonSetCondition lastTransitionTime:time message:string reason:string status:string type:string
StatefulSet apiVersion:string kind:string metadata:ObjectMeta spec:StatefulSetSpec status:StatefulSetStatus
StatefulSetSpec minReadySeconds:int32 ordinals:StatefulSetOrdinals persistentVolumeClaimRetentionPolicy:StatefulSetPersistentVolumeClaimRetentionPolicy podManagementPolicy:string(OrderedReady|Parallel) replicas:int32 revisionHistoryLimit:int32 selector:LabelSelector serviceName:string template:PodTemplateSpec updateStrategy:StatefulSetUpdateStrategy volumeClaimTemplates:[PersistentVolumeClaim]
StatefulSetOrdinals start:int32
StatefulSetPersistentVolumeClaimRetentionPolicy whenDeleted:string whenScaled:string
StatefulSetUpdateStrategy rollingUpdate:RollingUpdateStatefulSetStrategy type:string(OnDelete|RollingUpdate)
RollingUpdateStatefulSetStrategy maxUnavailable:intstr partition:int32
StatefulSetStatus availableReplicas:int32 collisionCount:int32 conditions:[StatefulSetCondition@type] currentReplicas:int32 currentRevision:string observedGeneration:int64 readyReplicas:int32 replicas:int32 updateRevision:string updatedReplicas:int32
StatefulSetCondition lastTransitionTime:time message:string reason:string status:string type:string

Job apiVersion:string kind:string metadata:ObjectMeta spec:JobSpec status:JobStatus
JobSpec activeDeadlineSeconds:int64 backoffLimit:int32 backoffLimitPerIndex:int32 completionMode:string(Indexed|NonIndexed) completions:int32 managedBy:string manualSelector:bool maxFailedIndexes:int32 parallelism:int32 podFailurePolicy:PodFailurePolicy podReplacementPolicy:string(Failed|TerminatingOrFailed) selector:LabelSelector successPolicy:SuccessPolicy suspend:bool template:PodTemplateSpec ttlSecondsAfterFinished:int32
PodFailurePolicy rules:[PodFailurePolicyRule]
PodFailurePolicyRule action:string(Count|FailIndex|FailJob|Ignore) onExitCodes:PodFailurePolicyOnExitCodesRequirement onPodConditions:[PodFailurePolicyOnPodConditionsPattern]
PodFailurePolicyOnExitCodesRequirement containerName:string operator:string(In|NotIn) values:[int32]
PodFailurePolicyOnPodConditionsPattern status:string type:string
SuccessPolicy rules:[SuccessPolicyRule]
SuccessPolicyRule succeededCount:int32 succeededIndexes:string
JobStatus active:int32 completedIndexes:string completionTime:time conditions:[JobCondition@type] failed:int32 failedIndexes:string ready:int32 startTime:time succeeded:int32 terminating:int32 uncountedTerminatedPods:UncountedTerminatedPods
JobCondition lastProbeTime:time lastTransitionTime:time message:string reason:string status:string type:string
UncountedTerminatedPods failed:[string] succeeded:[string]
CronJob apiVersion:string kind:string metadata:ObjectMeta spec:CronJobSpec status:CronJobStatus
CronJobSpec concurrencyPolicy:string(Allow|Forbid|Replace) failedJobsHistoryLimit:int32 jobTemplate:JobTemplateSpec schedule:string startingDeadlineSeconds:int64 successfulJobsHistoryLimit:int32 suspend:bool timeZone:string
JobTemplateSpec metadata:ObjectMeta spec:JobSpec
CronJobStatus active:[ObjectReference] lastScheduleTime:time lastSuccessfulTime:time

DeleteOptions apiVersion:string kind:string gracePeriodSeconds:int64 preconditions:Preconditions orphanDependents:bool propagationPolicy:string dryRun:[string] ignoreStoreReadErrorWithClusterBreakingPotential:bool
Preconditions uid:string resourceVersion:string

SelfSubjectReview apiVersion:string kind:string metadata:ObjectMeta status:SelfSubjectReviewStatus
SelfSubjectReviewStatus userInfo:UserInfo
UserInfo username:string uid:string groups:[string] extra:{[string]}
SelfSubjectAccessReview apiVersion:string kind:string metadata:ObjectMeta spec:SelfSubjectAccessReviewSpec status:SubjectAccessReviewStatus
SelfSubjectAccessReviewSpec resourceAttributes:ResourceAttributes nonResourceAttributes:NonResourceAttributes
ResourceAttributes namespace:string verb:string group:string version:string resource:string subresource:string name:string fieldSelector:FieldSelectorAttributes labelSelector:LabelSelectorAttributes
FieldSelectorAttributes rawSelector:string requirements:[FieldSelectorRequirement]
LabelSelectorAttributes rawSelector:string requirements:[LabelSelectorRequirement]
FieldSelectorRequirement key:string operator:string values:[string]
NonResourceAttributes path:string verb:string
SubjectAccessReviewStatus allowed:bool denied:bool reason:string evaluationError:string
SelfSubjectRulesReview apiVersion:string kind:string metadata:ObjectMeta spec:SelfSubjectRulesReviewSpec status:SubjectRulesReviewStatus
SelfSubjectRulesReviewSpec namespace:string
SubjectRulesReviewStatus resourceRules:[ResourceRule] nonResourceRules:[NonResourceRule] incomplete:bool evaluationError:string
ResourceRule verbs:[string] apiGroups:[string] resources:[string] resourceNames:[string]
NonResourceRule verbs:[string] nonResourceURLs:[string]

Scale apiVersion:string kind:string metadata:ObjectMeta spec:ScaleSpec status:ScaleStatus
ScaleSpec replicas:int32
ScaleStatus replicas:int32 selector:string
";
