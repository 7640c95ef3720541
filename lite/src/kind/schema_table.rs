//! The fields of the kinds, written small. One line a type: its name, then `field:type` for each field.
//!
//! A type is `string`, `string(A|B)` with the values that Kubernetes publishes for it, `int`, `bool`, `intstr` (a number or a string),
//! `any`, `[T]` a list, `{T}` a map from strings, or the name of another line. `[T@key]` is a list that a strategic merge joins by `key`, `[T+]` one that it joins as
//! a set; `T^` keeps only the keys that a strategic patch names (`retainKeys`).

pub(super) const TABLE: &str = "
ObjectMeta name:string generateName:string namespace:string selfLink:string uid:string resourceVersion:string generation:int creationTimestamp:string deletionTimestamp:string deletionGracePeriodSeconds:int labels:{string} annotations:{string} ownerReferences:[OwnerReference@uid] finalizers:[string+] managedFields:any
OwnerReference apiVersion:string kind:string name:string uid:string controller:bool blockOwnerDeletion:bool
Condition type:string status:string observedGeneration:int lastTransitionTime:string reason:string message:string
LocalObjectReference name:string
ObjectReference kind:string namespace:string name:string uid:string apiVersion:string resourceVersion:string fieldPath:string
TypedLocalObjectReference apiGroup:string kind:string name:string
LabelSelector matchLabels:{string} matchExpressions:[LabelSelectorRequirement]
LabelSelectorRequirement key:string operator:string values:[string]

Namespace apiVersion:string kind:string metadata:ObjectMeta spec:NamespaceSpec status:NamespaceStatus
NamespaceSpec finalizers:[string]
NamespaceStatus phase:string(Active|Terminating) conditions:[NamespaceCondition@type]
NamespaceCondition type:string status:string lastTransitionTime:string reason:string message:string

Service apiVersion:string kind:string metadata:ObjectMeta spec:ServiceSpec status:ServiceStatus
ServiceSpec ports:[ServicePort@port] selector:{string} clusterIP:string clusterIPs:[string] type:string(ClusterIP|ExternalName|LoadBalancer|NodePort) externalIPs:[string] sessionAffinity:string(ClientIP|None) loadBalancerIP:string loadBalancerSourceRanges:[string] externalName:string externalTrafficPolicy:string(Cluster|Local) healthCheckNodePort:int publishNotReadyAddresses:bool sessionAffinityConfig:any ipFamilies:[string(|IPv4|IPv6)] ipFamilyPolicy:string(PreferDualStack|RequireDualStack|SingleStack) allocateLoadBalancerNodePorts:bool loadBalancerClass:string internalTrafficPolicy:string(Cluster|Local) trafficDistribution:string
ServicePort name:string protocol:string(SCTP|TCP|UDP) appProtocol:string port:int targetPort:intstr nodePort:int
ServiceStatus loadBalancer:LoadBalancerStatus conditions:[Condition@type]
LoadBalancerStatus ingress:[LoadBalancerIngress]
LoadBalancerIngress ip:string hostname:string ipMode:string ports:[PortStatus]
PortStatus port:int protocol:string(SCTP|TCP|UDP) error:string

Secret apiVersion:string kind:string metadata:ObjectMeta type:string immutable:bool data:{string} stringData:{string}
ConfigMap apiVersion:string kind:string metadata:ObjectMeta immutable:bool data:{string} binaryData:{string}

Event apiVersion:string kind:string metadata:ObjectMeta involvedObject:ObjectReference reason:string message:string source:EventSource firstTimestamp:string lastTimestamp:string count:int type:string eventTime:string series:EventSeries action:string related:ObjectReference reportingComponent:string reportingInstance:string
EventSource component:string host:string
EventSeries count:int lastObservedTime:string

Ingress apiVersion:string kind:string metadata:ObjectMeta spec:IngressSpec status:IngressStatus
IngressSpec ingressClassName:string defaultBackend:IngressBackend tls:[IngressTLS] rules:[IngressRule]
IngressBackend service:IngressServiceBackend resource:TypedLocalObjectReference
IngressServiceBackend name:string port:ServiceBackendPort
ServiceBackendPort name:string number:int
IngressTLS hosts:[string] secretName:string
IngressRuleValue http:HTTPIngressRuleValue
IngressRule host:string http:HTTPIngressRuleValue
HTTPIngressRuleValue paths:[HTTPIngressPath]
HTTPIngressPath path:string pathType:string(Exact|ImplementationSpecific|Prefix) backend:IngressBackend
IngressStatus loadBalancer:LoadBalancerStatus
IngressClass apiVersion:string kind:string metadata:ObjectMeta spec:IngressClassSpec
IngressClassSpec controller:string parameters:IngressClassParametersReference
IngressClassParametersReference apiGroup:string kind:string name:string namespace:string scope:string

EndpointSlice apiVersion:string kind:string metadata:ObjectMeta addressType:string(FQDN|IPv4|IPv6) endpoints:[Endpoint] ports:[EndpointPort]
Endpoint addresses:[string] conditions:EndpointConditions hostname:string targetRef:ObjectReference deprecatedTopology:{string} nodeName:string zone:string hints:any
EndpointConditions ready:bool serving:bool terminating:bool
EndpointPort name:string protocol:string(SCTP|TCP|UDP) port:int appProtocol:string

Lease apiVersion:string kind:string metadata:ObjectMeta spec:LeaseSpec
LeaseSpec holderIdentity:string leaseDurationSeconds:int acquireTime:string renewTime:string leaseTransitions:int strategy:string preferredHolder:string

CustomResourceDefinition apiVersion:string kind:string metadata:ObjectMeta spec:CustomResourceDefinitionSpec status:CustomResourceDefinitionStatus
CustomResourceDefinitionSpec group:string names:CustomResourceDefinitionNames scope:string versions:[CustomResourceDefinitionVersion] conversion:CustomResourceConversion preserveUnknownFields:bool
CustomResourceDefinitionNames plural:string singular:string shortNames:[string] kind:string listKind:string categories:[string]
CustomResourceDefinitionVersion name:string served:bool storage:bool deprecated:bool deprecationWarning:string schema:CustomResourceValidation subresources:CustomResourceSubresources additionalPrinterColumns:[CustomResourceColumnDefinition] selectableFields:[SelectableField]
CustomResourceValidation openAPIV3Schema:any
CustomResourceSubresources status:any scale:CustomResourceSubresourceScale
CustomResourceSubresourceScale specReplicasPath:string statusReplicasPath:string labelSelectorPath:string
CustomResourceColumnDefinition name:string type:string format:string description:string priority:int jsonPath:string
SelectableField jsonPath:string
CustomResourceConversion strategy:string webhook:any
CustomResourceDefinitionStatus conditions:[CustomResourceDefinitionCondition@type] acceptedNames:CustomResourceDefinitionNames storedVersions:[string] observedGeneration:int
CustomResourceDefinitionCondition type:string status:string lastTransitionTime:string observedGeneration:int reason:string message:string

Deployment apiVersion:string kind:string metadata:ObjectMeta spec:DeploymentSpec status:DeploymentStatus
DeploymentSpec replicas:int selector:LabelSelector template:PodTemplateSpec strategy:DeploymentStrategy^ minReadySeconds:int revisionHistoryLimit:int paused:bool progressDeadlineSeconds:int
DeploymentStrategy type:string(Recreate|RollingUpdate) rollingUpdate:RollingUpdateDeployment
RollingUpdateDeployment maxUnavailable:intstr maxSurge:intstr
DeploymentStatus observedGeneration:int replicas:int updatedReplicas:int readyReplicas:int availableReplicas:int unavailableReplicas:int terminatingReplicas:int collisionCount:int conditions:[DeploymentCondition@type]
DeploymentCondition type:string status:string lastTransitionTime:string lastUpdateTime:string reason:string message:string
ReplicaSet apiVersion:string kind:string metadata:ObjectMeta spec:ReplicaSetSpec status:ReplicaSetStatus
ReplicaSetSpec replicas:int minReadySeconds:int selector:LabelSelector template:PodTemplateSpec
ReplicaSetStatus replicas:int fullyLabeledReplicas:int readyReplicas:int availableReplicas:int terminatingReplicas:int observedGeneration:int conditions:[ReplicaSetCondition@type]
ReplicaSetCondition type:string status:string lastTransitionTime:string reason:string message:string
Pod apiVersion:string kind:string metadata:ObjectMeta spec:PodSpec status:PodStatus
PodStatus observedGeneration:int phase:string(Failed|Pending|Running|Succeeded|Unknown) conditions:[PodCondition@type] message:string reason:string nominatedNodeName:string hostIP:string hostIPs:[PodIP] podIP:string podIPs:[PodIP@ip] startTime:string initContainerStatuses:any containerStatuses:any qosClass:string(BestEffort|Burstable|Guaranteed) ephemeralContainerStatuses:any resize:string resourceClaimStatuses:any allocatedResources:any extendedResourceClaimStatus:any nodeAllocatableResourceClaimStatuses:any resources:any
PodCondition type:string status:string observedGeneration:int lastProbeTime:string lastTransitionTime:string reason:string message:string
PodIP ip:string
PodTemplateSpec metadata:ObjectMeta spec:PodSpec
PodSpec volumes:[Volume^@name] initContainers:[Container@name] containers:[Container@name] ephemeralContainers:[Container@name] restartPolicy:string(Always|Never|OnFailure) terminationGracePeriodSeconds:int activeDeadlineSeconds:int dnsPolicy:string(ClusterFirst|ClusterFirstWithHostNet|Default|None) nodeSelector:{string} serviceAccountName:string serviceAccount:string automountServiceAccountToken:bool nodeName:string hostNetwork:bool hostPID:bool hostIPC:bool shareProcessNamespace:bool securityContext:any imagePullSecrets:[LocalObjectReference@name] hostname:string subdomain:string affinity:any schedulerName:string tolerations:[Toleration] hostAliases:[HostAlias@ip] priorityClassName:string priority:int dnsConfig:any readinessGates:any runtimeClassName:string enableServiceLinks:bool preemptionPolicy:string(Never|PreemptLowerPriority) overhead:any topologySpreadConstraints:[TopologySpreadConstraint@topologyKey] setHostnameAsFQDN:bool os:any hostUsers:bool schedulingGates:[LocalObjectReference@name] resourceClaims:[PodResourceClaim^@name] resources:any hostnameOverride:string schedulingGroup:any
PodResourceClaim name:string resourceClaimName:string resourceClaimTemplateName:string
HostAlias ip:string hostnames:[string]
Toleration key:string operator:string(Equal|Exists|Gt|Lt) value:string effect:string(NoExecute|NoSchedule|PreferNoSchedule) tolerationSeconds:int
TopologySpreadConstraint maxSkew:int topologyKey:string whenUnsatisfiable:string(DoNotSchedule|ScheduleAnyway) labelSelector:LabelSelector minDomains:int nodeAffinityPolicy:string(Honor|Ignore) nodeTaintsPolicy:string(Honor|Ignore) matchLabelKeys:[string]
Container name:string image:string command:[string] args:[string] workingDir:string ports:[ContainerPort@containerPort] envFrom:any env:[EnvVar@name] resources:any resizePolicy:any restartPolicy:string restartPolicyRules:any volumeMounts:[VolumeMount@mountPath] volumeDevices:[VolumeDevice@devicePath] livenessProbe:Probe readinessProbe:Probe startupProbe:Probe lifecycle:any terminationMessagePath:string terminationMessagePolicy:string(FallbackToLogsOnError|File) imagePullPolicy:string(Always|IfNotPresent|Never) securityContext:any stdin:bool stdinOnce:bool tty:bool targetContainerName:string
ContainerPort name:string hostPort:int containerPort:int protocol:string(SCTP|TCP|UDP) hostIP:string
EnvVar name:string value:string valueFrom:any
VolumeMount name:string readOnly:bool recursiveReadOnly:string mountPath:string subPath:string mountPropagation:string(Bidirectional|HostToContainer|None) subPathExpr:string
VolumeDevice name:string devicePath:string
Probe exec:any httpGet:HTTPGetAction tcpSocket:any grpc:any initialDelaySeconds:int timeoutSeconds:int periodSeconds:int successThreshold:int failureThreshold:int terminationGracePeriodSeconds:int
HTTPGetAction path:string port:intstr host:string scheme:string(HTTP|HTTPS) httpHeaders:any
Volume name:string configMap:any secret:any emptyDir:any hostPath:any projected:any downwardAPI:any persistentVolumeClaim:any csi:any ephemeral:any nfs:any image:any iscsi:any fc:any rbd:any cephfs:any glusterfs:any flexVolume:any awsElasticBlockStore:any azureDisk:any azureFile:any cinder:any flocker:any gcePersistentDisk:any gitRepo:any photonPersistentDisk:any portworxVolume:any quobyte:any scaleIO:any storageos:any vsphereVolume:any

Endpoints apiVersion:string kind:string metadata:ObjectMeta subsets:[EndpointSubset]
EndpointSubset addresses:[EndpointAddress] notReadyAddresses:[EndpointAddress] ports:[EndpointPort]
EndpointAddress hostname:string ip:string nodeName:string targetRef:ObjectReference

PersistentVolume apiVersion:string kind:string metadata:ObjectMeta spec:PersistentVolumeSpec status:PersistentVolumeStatus
PersistentVolumeSpec accessModes:[string(ReadOnlyMany|ReadWriteMany|ReadWriteOnce|ReadWriteOncePod)] awsElasticBlockStore:any azureDisk:any azureFile:any capacity:any cephfs:any cinder:any claimRef:ObjectReference csi:any fc:any flexVolume:any flocker:any gcePersistentDisk:any glusterfs:any hostPath:any iscsi:any local:any mountOptions:[string] nfs:any nodeAffinity:any persistentVolumeReclaimPolicy:string(Delete|Recycle|Retain) photonPersistentDisk:any portworxVolume:any quobyte:any rbd:any scaleIO:any storageClassName:string storageos:any volumeAttributesClassName:string volumeMode:string(Block|Filesystem) vsphereVolume:any
PersistentVolumeStatus lastPhaseTransitionTime:string message:string phase:string(Available|Bound|Failed|Pending|Released) reason:string
PersistentVolumeClaim apiVersion:string kind:string metadata:ObjectMeta spec:PersistentVolumeClaimSpec status:PersistentVolumeClaimStatus
PersistentVolumeClaimSpec accessModes:[string(ReadOnlyMany|ReadWriteMany|ReadWriteOnce|ReadWriteOncePod)] dataSource:TypedLocalObjectReference dataSourceRef:TypedObjectReference resources:VolumeResourceRequirements selector:LabelSelector storageClassName:string volumeAttributesClassName:string volumeMode:string(Block|Filesystem) volumeName:string
TypedObjectReference apiGroup:string kind:string name:string namespace:string
VolumeResourceRequirements limits:any requests:any
PersistentVolumeClaimStatus accessModes:[string(ReadOnlyMany|ReadWriteMany|ReadWriteOnce|ReadWriteOncePod)] allocatedResourceStatuses:{string} allocatedResources:any capacity:any conditions:[PersistentVolumeClaimCondition@type] currentVolumeAttributesClassName:string modifyVolumeStatus:ModifyVolumeStatus phase:string(Bound|Lost|Pending)
PersistentVolumeClaimCondition lastProbeTime:string lastTransitionTime:string message:string reason:string status:string type:string
ModifyVolumeStatus status:string(InProgress|Infeasible|Pending) targetVolumeAttributesClassName:string

ReplicationController apiVersion:string kind:string metadata:ObjectMeta spec:ReplicationControllerSpec status:ReplicationControllerStatus
ReplicationControllerSpec minReadySeconds:int replicas:int selector:{string} template:PodTemplateSpec
ReplicationControllerStatus availableReplicas:int conditions:[ReplicationControllerCondition@type] fullyLabeledReplicas:int observedGeneration:int readyReplicas:int replicas:int
ReplicationControllerCondition lastTransitionTime:string message:string reason:string status:string type:string
DaemonSet apiVersion:string kind:string metadata:ObjectMeta spec:DaemonSetSpec status:DaemonSetStatus
DaemonSetSpec minReadySeconds:int revisionHistoryLimit:int selector:LabelSelector template:PodTemplateSpec updateStrategy:DaemonSetUpdateStrategy
DaemonSetUpdateStrategy rollingUpdate:RollingUpdateDaemonSet type:string(OnDelete|RollingUpdate)
RollingUpdateDaemonSet maxSurge:intstr maxUnavailable:intstr
DaemonSetStatus collisionCount:int conditions:[DaemonSetCondition@type] currentNumberScheduled:int desiredNumberScheduled:int numberAvailable:int numberMisscheduled:int numberReady:int numberUnavailable:int observedGeneration:int updatedNumberScheduled:int
DaemonSetCondition lastTransitionTime:string message:string reason:string status:string type:string
StatefulSet apiVersion:string kind:string metadata:ObjectMeta spec:StatefulSetSpec status:StatefulSetStatus
StatefulSetSpec minReadySeconds:int ordinals:StatefulSetOrdinals persistentVolumeClaimRetentionPolicy:StatefulSetPersistentVolumeClaimRetentionPolicy podManagementPolicy:string(OrderedReady|Parallel) replicas:int revisionHistoryLimit:int selector:LabelSelector serviceName:string template:PodTemplateSpec updateStrategy:StatefulSetUpdateStrategy volumeClaimTemplates:[PersistentVolumeClaim]
StatefulSetOrdinals start:int
StatefulSetPersistentVolumeClaimRetentionPolicy whenDeleted:string whenScaled:string
StatefulSetUpdateStrategy rollingUpdate:RollingUpdateStatefulSetStrategy type:string(OnDelete|RollingUpdate)
RollingUpdateStatefulSetStrategy maxUnavailable:intstr partition:int
StatefulSetStatus availableReplicas:int collisionCount:int conditions:[StatefulSetCondition@type] currentReplicas:int currentRevision:string observedGeneration:int readyReplicas:int replicas:int updateRevision:string updatedReplicas:int
StatefulSetCondition lastTransitionTime:string message:string reason:string status:string type:string

Job apiVersion:string kind:string metadata:ObjectMeta spec:JobSpec status:JobStatus
JobSpec activeDeadlineSeconds:int backoffLimit:int backoffLimitPerIndex:int completionMode:string(Indexed|NonIndexed) completions:int managedBy:string manualSelector:bool maxFailedIndexes:int parallelism:int podFailurePolicy:PodFailurePolicy podReplacementPolicy:string(Failed|TerminatingOrFailed) selector:LabelSelector successPolicy:SuccessPolicy suspend:bool template:PodTemplateSpec ttlSecondsAfterFinished:int
PodFailurePolicy rules:[PodFailurePolicyRule]
PodFailurePolicyRule action:string(Count|FailIndex|FailJob|Ignore) onExitCodes:PodFailurePolicyOnExitCodesRequirement onPodConditions:[PodFailurePolicyOnPodConditionsPattern]
PodFailurePolicyOnExitCodesRequirement containerName:string operator:string(In|NotIn) values:[int]
PodFailurePolicyOnPodConditionsPattern status:string type:string
SuccessPolicy rules:[SuccessPolicyRule]
SuccessPolicyRule succeededCount:int succeededIndexes:string
JobStatus active:int completedIndexes:string completionTime:string conditions:[JobCondition@type] failed:int failedIndexes:string ready:int startTime:string succeeded:int terminating:int uncountedTerminatedPods:UncountedTerminatedPods
JobCondition lastProbeTime:string lastTransitionTime:string message:string reason:string status:string type:string
UncountedTerminatedPods failed:[string] succeeded:[string]
CronJob apiVersion:string kind:string metadata:ObjectMeta spec:CronJobSpec status:CronJobStatus
CronJobSpec concurrencyPolicy:string(Allow|Forbid|Replace) failedJobsHistoryLimit:int jobTemplate:JobTemplateSpec schedule:string startingDeadlineSeconds:int successfulJobsHistoryLimit:int suspend:bool timeZone:string
JobTemplateSpec metadata:ObjectMeta spec:JobSpec
CronJobStatus active:[ObjectReference] lastScheduleTime:string lastSuccessfulTime:string

DeleteOptions apiVersion:string kind:string gracePeriodSeconds:int preconditions:Preconditions orphanDependents:bool propagationPolicy:string dryRun:[string] ignoreStoreReadErrorWithClusterBreakingPotential:bool
Preconditions uid:string resourceVersion:string

SelfSubjectReview apiVersion:string kind:string metadata:ObjectMeta status:SelfSubjectReviewStatus
SelfSubjectReviewStatus userInfo:UserInfo
UserInfo username:string uid:string groups:[string] extra:any
SelfSubjectAccessReview apiVersion:string kind:string metadata:ObjectMeta spec:SelfSubjectAccessReviewSpec status:SubjectAccessReviewStatus
SelfSubjectAccessReviewSpec resourceAttributes:ResourceAttributes nonResourceAttributes:NonResourceAttributes
ResourceAttributes namespace:string verb:string group:string version:string resource:string subresource:string name:string fieldSelector:any labelSelector:any
NonResourceAttributes path:string verb:string
SubjectAccessReviewStatus allowed:bool denied:bool reason:string evaluationError:string
SelfSubjectRulesReview apiVersion:string kind:string metadata:ObjectMeta spec:SelfSubjectRulesReviewSpec status:SubjectRulesReviewStatus
SelfSubjectRulesReviewSpec namespace:string
SubjectRulesReviewStatus resourceRules:[ResourceRule] nonResourceRules:[NonResourceRule] incomplete:bool evaluationError:string
ResourceRule verbs:[string] apiGroups:[string] resources:[string] resourceNames:[string]
NonResourceRule verbs:[string] nonResourceURLs:[string]

Scale apiVersion:string kind:string metadata:ObjectMeta spec:ScaleSpec status:ScaleStatus
ScaleSpec replicas:int
ScaleStatus replicas:int selector:string
";
