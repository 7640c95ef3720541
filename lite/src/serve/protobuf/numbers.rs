//! Protobuf field numbers of the types that kubectl's own `create` commands send. One line per type, with
//! `number:field` pairs.
//!
//! A `*` marks a field whose zero is meaningful (a pointer in Go): elsewhere the encoder writes a zero or an empty
//! string for "absent". `@` marks a time, `!` bytes that JSON writes as base64, and `<` an inlined type.

pub(super) const TABLE: &str = "
ObjectMeta 1:name 2:generateName 3:namespace 4:selfLink 5:uid 6:resourceVersion 7:generation 8:creationTimestamp@ 9:deletionTimestamp@ 10:deletionGracePeriodSeconds* 11:labels 12:annotations 13:ownerReferences 14:finalizers
OwnerReference 5:apiVersion 1:kind 3:name 4:uid 6:controller* 7:blockOwnerDeletion*
LabelSelector 1:matchLabels 2:matchExpressions
LabelSelectorRequirement 1:key 2:operator 3:values
DeleteOptions 1:gracePeriodSeconds* 2:preconditions 3:orphanDependents* 4:propagationPolicy* 5:dryRun
Preconditions 1:uid* 2:resourceVersion*
Namespace 1:metadata 2:spec 3:status
NamespaceSpec 1:finalizers
NamespaceStatus 1:phase
Secret 1:metadata 2:data! 3:type 4:stringData 5:immutable*
ConfigMap 1:metadata 2:data 3:binaryData! 4:immutable*
Service 1:metadata 2:spec 3:status
ServiceSpec 1:ports 2:selector 3:clusterIP 4:type 5:externalIPs 7:sessionAffinity 8:loadBalancerIP 9:loadBalancerSourceRanges 10:externalName 11:externalTrafficPolicy 12:healthCheckNodePort 13:publishNotReadyAddresses 17:ipFamilyPolicy* 18:clusterIPs 19:ipFamilies 20:allocateLoadBalancerNodePorts* 21:loadBalancerClass* 22:internalTrafficPolicy* 23:trafficDistribution*
ServicePort 1:name 2:protocol 3:port 4:targetPort 5:nodePort 6:appProtocol*
ServiceStatus 1:loadBalancer
LoadBalancerStatus 1:ingress
LoadBalancerIngress 1:ip 2:hostname
Ingress 1:metadata 2:spec 3:status
IngressSpec 1:defaultBackend 2:tls 3:rules 4:ingressClassName*
IngressBackend 3:resource 4:service
IngressServiceBackend 1:name 2:port
ServiceBackendPort 1:name 2:number
TypedLocalObjectReference 1:apiGroup* 2:kind 3:name
IngressTLS 1:hosts 2:secretName
IngressRule 1:host 2:<IngressRuleValue
IngressRuleValue 1:http
HTTPIngressRuleValue 1:paths
HTTPIngressPath 1:path 2:backend 3:pathType*
IngressStatus 1:loadBalancer
IngressClass 1:metadata 2:spec
IngressClassSpec 1:controller 2:parameters
IngressClassParametersReference 1:apiGroup* 2:kind 3:name 4:scope* 5:namespace*
Deployment 1:metadata 2:spec 3:status
DeploymentSpec 1:replicas* 2:selector 3:template 4:strategy 5:minReadySeconds 6:revisionHistoryLimit* 7:paused 9:progressDeadlineSeconds*
DeploymentStrategy 1:type 2:rollingUpdate
RollingUpdateDeployment 1:maxUnavailable 2:maxSurge
DeploymentStatus 1:observedGeneration 2:replicas 3:updatedReplicas 4:availableReplicas 5:unavailableReplicas 7:readyReplicas 8:collisionCount*
PodTemplateSpec 1:metadata 2:spec
PodSpec 2:containers 3:restartPolicy 4:terminationGracePeriodSeconds* 5:activeDeadlineSeconds* 6:dnsPolicy 7:nodeSelector 8:serviceAccountName 9:serviceAccount 10:nodeName 11:hostNetwork 12:hostPID 13:hostIPC 14:securityContext 16:hostname 17:subdomain 19:schedulerName 20:initContainers
Container 1:name 2:image 3:command 4:args 5:workingDir 6:ports 7:env 8:resources 12:lifecycle 13:terminationMessagePath 14:imagePullPolicy 15:securityContext 16:stdin 17:stdinOnce 18:tty 20:terminationMessagePolicy
ContainerPort 1:name 2:hostPort 3:containerPort 4:protocol 5:hostIP
EnvVar 1:name 2:value
Job 1:metadata 2:spec 3:status
JobSpec 1:parallelism* 2:completions* 3:activeDeadlineSeconds* 4:selector 5:manualSelector* 6:template 7:backoffLimit* 8:ttlSecondsAfterFinished* 9:completionMode* 10:suspend* 12:backoffLimitPerIndex* 13:maxFailedIndexes* 14:podReplacementPolicy* 15:managedBy*
JobStatus 4:active 5:succeeded 6:failed
CronJob 1:metadata 2:spec 3:status
CronJobSpec 1:schedule 2:startingDeadlineSeconds* 3:concurrencyPolicy 4:suspend* 5:jobTemplate 6:successfulJobsHistoryLimit* 7:failedJobsHistoryLimit* 8:timeZone*
CronJobStatus 1:active
JobTemplateSpec 1:metadata 2:spec
SelfSubjectReview 1:metadata 2:status
SelfSubjectReviewStatus 1:userInfo
UserInfo 1:username 2:uid 3:groups
SelfSubjectAccessReview 1:metadata 2:spec 3:status
SelfSubjectAccessReviewSpec 1:resourceAttributes 2:nonResourceAttributes
ResourceAttributes 1:namespace 2:verb 3:group 4:version 5:resource 6:subresource 7:name
NonResourceAttributes 1:path 2:verb
SubjectAccessReviewStatus 1:allowed 2:reason 3:evaluationError 4:denied
SelfSubjectRulesReview 1:metadata 2:spec 3:status
SelfSubjectRulesReviewSpec 1:namespace
SubjectRulesReviewStatus 1:resourceRules 2:nonResourceRules 3:incomplete 4:evaluationError
ServiceAccount 1:metadata 2:secrets 3:imagePullSecrets 4:automountServiceAccountToken*
Role 1:metadata 2:rules
ClusterRole 1:metadata 2:rules 3:aggregationRule
PolicyRule 1:verbs 2:apiGroups 3:resources 4:resourceNames 5:nonResourceURLs
AggregationRule 1:clusterRoleSelectors
RoleBinding 1:metadata 2:subjects 3:roleRef
ClusterRoleBinding 1:metadata 2:subjects 3:roleRef
RoleRef 1:apiGroup 2:kind 3:name
Subject 1:kind 2:apiGroup 3:name 4:namespace
PodDisruptionBudget 1:metadata 2:spec 3:status
PodDisruptionBudgetSpec 1:minAvailable 2:selector 3:maxUnavailable 4:unhealthyPodEvictionPolicy*
PodDisruptionBudgetStatus 3:disruptionsAllowed 4:currentHealthy 5:desiredHealthy 6:expectedPods
HorizontalPodAutoscaler 1:metadata 2:spec 3:status
HorizontalPodAutoscalerSpec 1:scaleTargetRef 2:minReplicas* 3:maxReplicas 4:metrics
HorizontalPodAutoscalerStatus 4:desiredReplicas
CrossVersionObjectReference 1:kind 2:name 3:apiVersion
MetricSpec 1:type 4:resource
ResourceMetricSource 1:name 2:target
MetricTarget 1:type 4:averageUtilization*
";
