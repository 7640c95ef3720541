//! The fields of Pods and of their templates, written as in the table of the other kinds.

pub(super) const TABLE: &str = "
Pod apiVersion:string kind:string metadata:ObjectMeta spec:PodSpec status:PodStatus
PodStatus observedGeneration:int64 phase:string(Failed|Pending|Running|Succeeded|Unknown) conditions:[PodCondition@type] message:string reason:string nominatedNodeName:string hostIP:string hostIPs:[HostIP@ip] podIP:string podIPs:[PodIP@ip] startTime:time initContainerStatuses:[ContainerStatus] containerStatuses:[ContainerStatus] qosClass:string(BestEffort|Burstable|Guaranteed) ephemeralContainerStatuses:[ContainerStatus] resize:string resourceClaimStatuses:[PodResourceClaimStatus^@name] allocatedResources:{quantity} extendedResourceClaimStatus:PodExtendedResourceClaimStatus nodeAllocatableResourceClaimStatuses:[NodeAllocatableResourceClaimStatus] resources:ResourceRequirements
PodCondition type:string status:string observedGeneration:int64 lastProbeTime:time lastTransitionTime:time reason:string message:string
PodIP ip:string
PodTemplateSpec metadata:ObjectMeta spec:PodSpec
PodSpec volumes:[Volume^@name] initContainers:[Container@name] containers:[Container@name] ephemeralContainers:[EphemeralContainer@name] restartPolicy:string(Always|Never|OnFailure) terminationGracePeriodSeconds:int64 activeDeadlineSeconds:int64 dnsPolicy:string(ClusterFirst|ClusterFirstWithHostNet|Default|None) nodeSelector:{string} serviceAccountName:string serviceAccount:string automountServiceAccountToken:bool nodeName:string hostNetwork:bool hostPID:bool hostIPC:bool shareProcessNamespace:bool securityContext:PodSecurityContext imagePullSecrets:[LocalObjectReference@name] hostname:string subdomain:string affinity:Affinity schedulerName:string tolerations:[Toleration] hostAliases:[HostAlias@ip] priorityClassName:string priority:int32 dnsConfig:PodDNSConfig readinessGates:[PodReadinessGate] runtimeClassName:string enableServiceLinks:bool preemptionPolicy:string(Never|PreemptLowerPriority) overhead:{quantity} topologySpreadConstraints:[TopologySpreadConstraint@topologyKey] setHostnameAsFQDN:bool os:PodOS hostUsers:bool schedulingGates:[PodSchedulingGate@name] resourceClaims:[PodResourceClaim^@name] resources:ResourceRequirements hostnameOverride:string schedulingGroup:PodSchedulingGroup
PodResourceClaim name:string resourceClaimName:string resourceClaimTemplateName:string
HostAlias ip:string hostnames:[string]
Toleration key:string operator:string(Equal|Exists|Gt|Lt) value:string effect:string(NoExecute|NoSchedule|PreferNoSchedule) tolerationSeconds:int64
TopologySpreadConstraint maxSkew:int32 topologyKey:string whenUnsatisfiable:string(DoNotSchedule|ScheduleAnyway) labelSelector:LabelSelector minDomains:int32 nodeAffinityPolicy:string(Honor|Ignore) nodeTaintsPolicy:string(Honor|Ignore) matchLabelKeys:[string]
Container name:string image:string command:[string] args:[string] workingDir:string ports:[ContainerPort@containerPort] envFrom:[EnvFromSource] env:[EnvVar@name] resources:ResourceRequirements resizePolicy:[ContainerResizePolicy] restartPolicy:string restartPolicyRules:[ContainerRestartRule] volumeMounts:[VolumeMount@mountPath] volumeDevices:[VolumeDevice@devicePath] livenessProbe:Probe readinessProbe:Probe startupProbe:Probe lifecycle:Lifecycle terminationMessagePath:string terminationMessagePolicy:string(FallbackToLogsOnError|File) imagePullPolicy:string(Always|IfNotPresent|Never) securityContext:SecurityContext stdin:bool stdinOnce:bool tty:bool
ContainerPort name:string hostPort:int32 containerPort:int32 protocol:string(SCTP|TCP|UDP) hostIP:string
EnvVar name:string value:string valueFrom:EnvVarSource
VolumeMount name:string readOnly:bool recursiveReadOnly:string mountPath:string subPath:string mountPropagation:string(Bidirectional|HostToContainer|None) subPathExpr:string
VolumeDevice name:string devicePath:string
Probe exec:ExecAction httpGet:HTTPGetAction tcpSocket:TCPSocketAction grpc:GRPCAction initialDelaySeconds:int32 timeoutSeconds:int32 periodSeconds:int32 successThreshold:int32 failureThreshold:int32 terminationGracePeriodSeconds:int64
HTTPGetAction path:string port:intstr host:string scheme:string(HTTP|HTTPS) httpHeaders:[HTTPHeader]
Volume name:string configMap:ConfigMapVolumeSource secret:SecretVolumeSource emptyDir:EmptyDirVolumeSource hostPath:HostPathVolumeSource projected:ProjectedVolumeSource downwardAPI:DownwardAPIVolumeSource persistentVolumeClaim:PersistentVolumeClaimVolumeSource csi:CSIVolumeSource ephemeral:EphemeralVolumeSource nfs:NFSVolumeSource image:ImageVolumeSource iscsi:ISCSIVolumeSource fc:FCVolumeSource rbd:RBDVolumeSource cephfs:CephFSVolumeSource glusterfs:GlusterfsVolumeSource flexVolume:FlexVolumeSource awsElasticBlockStore:AWSElasticBlockStoreVolumeSource azureDisk:AzureDiskVolumeSource azureFile:AzureFileVolumeSource cinder:CinderVolumeSource flocker:FlockerVolumeSource gcePersistentDisk:GCEPersistentDiskVolumeSource gitRepo:GitRepoVolumeSource photonPersistentDisk:PhotonPersistentDiskVolumeSource portworxVolume:PortworxVolumeSource quobyte:QuobyteVolumeSource scaleIO:ScaleIOVolumeSource storageos:StorageOSVolumeSource vsphereVolume:VsphereVirtualDiskVolumeSource
ContainerStatus allocatedResources:{quantity} allocatedResourcesStatus:[ResourceStatus@name] containerID:string image:string imageID:string lastState:ContainerState name:string ready:bool resources:ResourceRequirements restartCount:int32 started:bool state:ContainerState stopSignal:string(SIGABRT|SIGALRM|SIGBUS|SIGCHLD|SIGCLD|SIGCONT|SIGFPE|SIGHUP|SIGILL|SIGINT|SIGIO|SIGIOT|SIGKILL|SIGPIPE|SIGPOLL|SIGPROF|SIGPWR|SIGQUIT|SIGRTMAX|SIGRTMAX-1|SIGRTMAX-10|SIGRTMAX-11|SIGRTMAX-12|SIGRTMAX-13|SIGRTMAX-14|SIGRTMAX-2|SIGRTMAX-3|SIGRTMAX-4|SIGRTMAX-5|SIGRTMAX-6|SIGRTMAX-7|SIGRTMAX-8|SIGRTMAX-9|SIGRTMIN|SIGRTMIN+1|SIGRTMIN+10|SIGRTMIN+11|SIGRTMIN+12|SIGRTMIN+13|SIGRTMIN+14|SIGRTMIN+15|SIGRTMIN+2|SIGRTMIN+3|SIGRTMIN+4|SIGRTMIN+5|SIGRTMIN+6|SIGRTMIN+7|SIGRTMIN+8|SIGRTMIN+9|SIGSEGV|SIGSTKFLT|SIGSTOP|SIGSYS|SIGTERM|SIGTRAP|SIGTSTP|SIGTTIN|SIGTTOU|SIGURG|SIGUSR1|SIGUSR2|SIGVTALRM|SIGWINCH|SIGXCPU|SIGXFSZ) user:ContainerUser volumeMounts:[VolumeMountStatus@mountPath]
PodExtendedResourceClaimStatus requestMappings:[ContainerExtendedResourceRequest] resourceClaimName:string
HostIP ip:string
NodeAllocatableResourceClaimStatus containers:[string] resourceClaimName:string resources:{quantity}
PodResourceClaimStatus name:string resourceClaimName:string
ResourceRequirements claims:[ResourceClaim] limits:{quantity} requests:{quantity}
Affinity nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAntiAffinity
PodDNSConfig nameservers:[string] options:[PodDNSConfigOption] searches:[string]
EphemeralContainer args:[string] command:[string] env:[EnvVar@name] envFrom:[EnvFromSource] image:string imagePullPolicy:string(Always|IfNotPresent|Never) lifecycle:Lifecycle livenessProbe:Probe name:string ports:[ContainerPort@containerPort] readinessProbe:Probe resizePolicy:[ContainerResizePolicy] resources:ResourceRequirements restartPolicy:string restartPolicyRules:[ContainerRestartRule] securityContext:SecurityContext startupProbe:Probe stdin:bool stdinOnce:bool targetContainerName:string terminationMessagePath:string terminationMessagePolicy:string(FallbackToLogsOnError|File) tty:bool volumeDevices:[VolumeDevice@devicePath] volumeMounts:[VolumeMount@mountPath] workingDir:string
PodOS name:string
PodReadinessGate conditionType:string
PodSchedulingGate name:string
PodSchedulingGroup podGroupName:string
PodSecurityContext appArmorProfile:AppArmorProfile fsGroup:int64 fsGroupChangePolicy:string(Always|OnRootMismatch) runAsGroup:int64 runAsNonRoot:bool runAsUser:int64 seLinuxChangePolicy:string seLinuxOptions:SELinuxOptions seccompProfile:SeccompProfile supplementalGroups:[int64] supplementalGroupsPolicy:string(Merge|Strict) sysctls:[Sysctl] windowsOptions:WindowsSecurityContextOptions
EnvFromSource configMapRef:ConfigMapEnvSource prefix:string secretRef:SecretEnvSource
Lifecycle postStart:LifecycleHandler preStop:LifecycleHandler stopSignal:string(SIGABRT|SIGALRM|SIGBUS|SIGCHLD|SIGCLD|SIGCONT|SIGFPE|SIGHUP|SIGILL|SIGINT|SIGIO|SIGIOT|SIGKILL|SIGPIPE|SIGPOLL|SIGPROF|SIGPWR|SIGQUIT|SIGRTMAX|SIGRTMAX-1|SIGRTMAX-10|SIGRTMAX-11|SIGRTMAX-12|SIGRTMAX-13|SIGRTMAX-14|SIGRTMAX-2|SIGRTMAX-3|SIGRTMAX-4|SIGRTMAX-5|SIGRTMAX-6|SIGRTMAX-7|SIGRTMAX-8|SIGRTMAX-9|SIGRTMIN|SIGRTMIN+1|SIGRTMIN+10|SIGRTMIN+11|SIGRTMIN+12|SIGRTMIN+13|SIGRTMIN+14|SIGRTMIN+15|SIGRTMIN+2|SIGRTMIN+3|SIGRTMIN+4|SIGRTMIN+5|SIGRTMIN+6|SIGRTMIN+7|SIGRTMIN+8|SIGRTMIN+9|SIGSEGV|SIGSTKFLT|SIGSTOP|SIGSYS|SIGTERM|SIGTRAP|SIGTSTP|SIGTTIN|SIGTTOU|SIGURG|SIGUSR1|SIGUSR2|SIGVTALRM|SIGWINCH|SIGXCPU|SIGXFSZ)
ContainerResizePolicy resourceName:string restartPolicy:string
ContainerRestartRule action:string exitCodes:ContainerRestartRuleOnExitCodes
SecurityContext allowPrivilegeEscalation:bool appArmorProfile:AppArmorProfile capabilities:Capabilities privileged:bool procMount:string(Default|Unmasked) readOnlyRootFilesystem:bool runAsGroup:int64 runAsNonRoot:bool runAsUser:int64 seLinuxOptions:SELinuxOptions seccompProfile:SeccompProfile windowsOptions:WindowsSecurityContextOptions
EnvVarSource configMapKeyRef:ConfigMapKeySelector fieldRef:ObjectFieldSelector fileKeyRef:FileKeySelector resourceFieldRef:ResourceFieldSelector secretKeyRef:SecretKeySelector
ExecAction command:[string]
GRPCAction port:int32 service:string
TCPSocketAction host:string port:intstr
HTTPHeader name:string value:string
AWSElasticBlockStoreVolumeSource fsType:string partition:int32 readOnly:bool volumeID:string
AzureDiskVolumeSource cachingMode:string(None|ReadOnly|ReadWrite) diskName:string diskURI:string fsType:string kind:string(Dedicated|Managed|Shared) readOnly:bool
AzureFileVolumeSource readOnly:bool secretName:string shareName:string
CephFSVolumeSource monitors:[string] path:string readOnly:bool secretFile:string secretRef:LocalObjectReference user:string
CinderVolumeSource fsType:string readOnly:bool secretRef:LocalObjectReference volumeID:string
ConfigMapVolumeSource defaultMode:int32 items:[KeyToPath] name:string optional:bool
CSIVolumeSource driver:string fsType:string nodePublishSecretRef:LocalObjectReference readOnly:bool volumeAttributes:{string}
DownwardAPIVolumeSource defaultMode:int32 items:[DownwardAPIVolumeFile]
EmptyDirVolumeSource medium:string sizeLimit:quantity
EphemeralVolumeSource volumeClaimTemplate:PersistentVolumeClaimTemplate
FCVolumeSource fsType:string lun:int32 readOnly:bool targetWWNs:[string] wwids:[string]
FlexVolumeSource driver:string fsType:string options:{string} readOnly:bool secretRef:LocalObjectReference
FlockerVolumeSource datasetName:string datasetUUID:string
GCEPersistentDiskVolumeSource fsType:string partition:int32 pdName:string readOnly:bool
GitRepoVolumeSource directory:string repository:string revision:string
GlusterfsVolumeSource endpoints:string path:string readOnly:bool
HostPathVolumeSource path:string type:string(|BlockDevice|CharDevice|Directory|DirectoryOrCreate|File|FileOrCreate|Socket)
ImageVolumeSource pullPolicy:string(Always|IfNotPresent|Never) reference:string
ISCSIVolumeSource chapAuthDiscovery:bool chapAuthSession:bool fsType:string initiatorName:string iqn:string iscsiInterface:string lun:int32 portals:[string] readOnly:bool secretRef:LocalObjectReference targetPortal:string
NFSVolumeSource path:string readOnly:bool server:string
PersistentVolumeClaimVolumeSource claimName:string readOnly:bool
PhotonPersistentDiskVolumeSource fsType:string pdID:string
PortworxVolumeSource fsType:string readOnly:bool volumeID:string
ProjectedVolumeSource defaultMode:int32 sources:[VolumeProjection]
QuobyteVolumeSource group:string readOnly:bool registry:string tenant:string user:string volume:string
RBDVolumeSource fsType:string image:string keyring:string monitors:[string] pool:string readOnly:bool secretRef:LocalObjectReference user:string
ScaleIOVolumeSource fsType:string gateway:string protectionDomain:string readOnly:bool secretRef:LocalObjectReference sslEnabled:bool storageMode:string storagePool:string system:string volumeName:string
SecretVolumeSource defaultMode:int32 items:[KeyToPath] optional:bool secretName:string
StorageOSVolumeSource fsType:string readOnly:bool secretRef:LocalObjectReference volumeName:string volumeNamespace:string
VsphereVirtualDiskVolumeSource fsType:string storagePolicyID:string storagePolicyName:string volumePath:string
ResourceStatus name:string resources:[ResourceHealth]
ContainerState running:ContainerStateRunning terminated:ContainerStateTerminated waiting:ContainerStateWaiting
ContainerUser linux:LinuxContainerUser
VolumeMountStatus mountPath:string name:string readOnly:bool recursiveReadOnly:string volumeStatus:VolumeStatus
ContainerExtendedResourceRequest containerName:string requestName:string resourceName:string
ResourceClaim name:string request:string
NodeAffinity preferredDuringSchedulingIgnoredDuringExecution:[PreferredSchedulingTerm] requiredDuringSchedulingIgnoredDuringExecution:NodeSelector
PodAffinity preferredDuringSchedulingIgnoredDuringExecution:[WeightedPodAffinityTerm] requiredDuringSchedulingIgnoredDuringExecution:[PodAffinityTerm]
PodAntiAffinity preferredDuringSchedulingIgnoredDuringExecution:[WeightedPodAffinityTerm] requiredDuringSchedulingIgnoredDuringExecution:[PodAffinityTerm]
PodDNSConfigOption name:string value:string
AppArmorProfile localhostProfile:string type:string(Localhost|RuntimeDefault|Unconfined)
SELinuxOptions level:string role:string type:string user:string
SeccompProfile localhostProfile:string type:string(Localhost|RuntimeDefault|Unconfined)
Sysctl name:string value:string
WindowsSecurityContextOptions gmsaCredentialSpec:string gmsaCredentialSpecName:string hostProcess:bool runAsUserName:string
ConfigMapEnvSource name:string optional:bool
SecretEnvSource name:string optional:bool
LifecycleHandler exec:ExecAction httpGet:HTTPGetAction sleep:SleepAction tcpSocket:TCPSocketAction
ContainerRestartRuleOnExitCodes operator:string values:[int32]
Capabilities add:[string] drop:[string]
ConfigMapKeySelector key:string name:string optional:bool
ObjectFieldSelector apiVersion:string fieldPath:string
FileKeySelector key:string optional:bool path:string volumeName:string
ResourceFieldSelector containerName:string divisor:quantity resource:string
SecretKeySelector key:string name:string optional:bool
KeyToPath key:string mode:int32 path:string
DownwardAPIVolumeFile fieldRef:ObjectFieldSelector mode:int32 path:string resourceFieldRef:ResourceFieldSelector
PersistentVolumeClaimTemplate metadata:ObjectMeta spec:PersistentVolumeClaimSpec
VolumeProjection clusterTrustBundle:ClusterTrustBundleProjection configMap:ConfigMapProjection downwardAPI:DownwardAPIProjection podCertificate:PodCertificateProjection secret:SecretProjection serviceAccountToken:ServiceAccountTokenProjection
NodeSelector nodeSelectorTerms:[NodeSelectorTerm]
ResourceHealth health:string message:string resourceID:string
ContainerStateRunning startedAt:time
ContainerStateTerminated containerID:string exitCode:int32 finishedAt:time message:string reason:string signal:int32 startedAt:time
ContainerStateWaiting message:string reason:string
LinuxContainerUser gid:int64 supplementalGroups:[int64] uid:int64
VolumeStatus image:ImageVolumeStatus
PreferredSchedulingTerm preference:NodeSelectorTerm weight:int32
WeightedPodAffinityTerm podAffinityTerm:PodAffinityTerm weight:int32
PodAffinityTerm labelSelector:LabelSelector matchLabelKeys:[string] mismatchLabelKeys:[string] namespaceSelector:LabelSelector namespaces:[string] topologyKey:string
SleepAction seconds:int64
ClusterTrustBundleProjection labelSelector:LabelSelector name:string optional:bool path:string signerName:string
ConfigMapProjection items:[KeyToPath] name:string optional:bool
DownwardAPIProjection items:[DownwardAPIVolumeFile]
PodCertificateProjection certificateChainPath:string credentialBundlePath:string keyPath:string keyType:string maxExpirationSeconds:int32 signerName:string userAnnotations:{string}
SecretProjection items:[KeyToPath] name:string optional:bool
ServiceAccountTokenProjection audience:string expirationSeconds:int64 path:string
NodeSelectorTerm matchExpressions:[NodeSelectorRequirement] matchFields:[NodeSelectorRequirement]
ImageVolumeStatus imageRef:string
NodeSelectorRequirement key:string operator:string(DoesNotExist|Exists|Gt|In|Lt|NotIn) values:[string]

ConfigMapNodeConfigSource kubeletConfigKey:string name:string namespace:string resourceVersion:string uid:string
NodeConfigSource configMap:ConfigMapNodeConfigSource
Taint effect:string(NoExecute|NoSchedule|PreferNoSchedule) key:string timeAdded:time value:string
NodeSpec configSource:NodeConfigSource externalID:string podCIDR:string podCIDRs:[string+] providerID:string taints:[Taint] unschedulable:bool
NodeAddress address:string type:string
NodeCondition lastHeartbeatTime:time lastTransitionTime:time message:string reason:string status:string type:string
NodeConfigStatus active:NodeConfigSource assigned:NodeConfigSource error:string lastKnownGood:NodeConfigSource
DaemonEndpoint Port:int32
NodeDaemonEndpoints kubeletEndpoint:DaemonEndpoint
NodeFeatures supplementalGroupsPolicy:bool
ContainerImage names:[string] sizeBytes:int64
NodeSwapStatus capacity:int64
NodeSystemInfo architecture:string bootID:string containerRuntimeVersion:string kernelVersion:string kubeProxyVersion:string kubeletVersion:string machineID:string operatingSystem:string osImage:string swap:NodeSwapStatus systemUUID:string
NodeRuntimeHandlerFeatures recursiveReadOnlyMounts:bool userNamespaces:bool
NodeRuntimeHandler features:NodeRuntimeHandlerFeatures name:string
AttachedVolume devicePath:string name:string
NodeStatus addresses:[NodeAddress@type] allocatable:{quantity} capacity:{quantity} conditions:[NodeCondition@type] config:NodeConfigStatus daemonEndpoints:NodeDaemonEndpoints declaredFeatures:[string] features:NodeFeatures images:[ContainerImage] nodeInfo:NodeSystemInfo phase:string(Pending|Running|Terminated) runtimeHandlers:[NodeRuntimeHandler] volumesAttached:[AttachedVolume] volumesInUse:[string]
Node apiVersion:string kind:string metadata:ObjectMeta spec:NodeSpec status:NodeStatus
";
