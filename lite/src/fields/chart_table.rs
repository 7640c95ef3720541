//! The fields of the kinds that charts bring and that nothing here acts on: accounts and roles, policies, autoscalers.

pub(super) const TABLE: &str = "
ServiceAccount apiVersion:string automountServiceAccountToken:bool imagePullSecrets:[LocalObjectReference] kind:string metadata:ObjectMeta secrets:[ObjectReference@name]

PolicyRule apiGroups:[string] nonResourceURLs:[string] resourceNames:[string] resources:[string] verbs:[string]
Role apiVersion:string kind:string metadata:ObjectMeta rules:[PolicyRule]
RoleRef apiGroup:string kind:string name:string
Subject apiGroup:string kind:string name:string namespace:string
RoleBinding apiVersion:string kind:string metadata:ObjectMeta roleRef:RoleRef subjects:[Subject]
AggregationRule clusterRoleSelectors:[LabelSelector]
ClusterRole aggregationRule:AggregationRule apiVersion:string kind:string metadata:ObjectMeta rules:[PolicyRule]
ClusterRoleBinding apiVersion:string kind:string metadata:ObjectMeta roleRef:RoleRef subjects:[Subject]

PodDisruptionBudgetSpec maxUnavailable:intstr minAvailable:intstr selector:LabelSelector unhealthyPodEvictionPolicy:string(AlwaysAllow|IfHealthyBudget)
PodDisruptionBudgetStatus conditions:[Condition@type] currentHealthy:int32 desiredHealthy:int32 disruptedPods:{time} disruptionsAllowed:int32 expectedPods:int32 observedGeneration:int64
PodDisruptionBudget apiVersion:string kind:string metadata:ObjectMeta spec:PodDisruptionBudgetSpec status:PodDisruptionBudgetStatus

HPAScalingPolicy periodSeconds:int32 type:string value:int32
HPAScalingRules policies:[HPAScalingPolicy] selectPolicy:string stabilizationWindowSeconds:int32 tolerance:quantity
HorizontalPodAutoscalerBehavior scaleDown:HPAScalingRules scaleUp:HPAScalingRules
MetricTarget averageUtilization:int32 averageValue:quantity type:string value:quantity
ContainerResourceMetricSource container:string name:string target:MetricTarget
MetricIdentifier name:string selector:LabelSelector
ExternalMetricSource metric:MetricIdentifier target:MetricTarget
CrossVersionObjectReference apiVersion:string kind:string name:string
ObjectMetricSource describedObject:CrossVersionObjectReference metric:MetricIdentifier target:MetricTarget
PodsMetricSource metric:MetricIdentifier target:MetricTarget
ResourceMetricSource name:string target:MetricTarget
MetricSpec containerResource:ContainerResourceMetricSource external:ExternalMetricSource object:ObjectMetricSource pods:PodsMetricSource resource:ResourceMetricSource type:string
HorizontalPodAutoscalerSpec behavior:HorizontalPodAutoscalerBehavior maxReplicas:int32 metrics:[MetricSpec] minReplicas:int32 scaleTargetRef:CrossVersionObjectReference
HorizontalPodAutoscalerCondition lastTransitionTime:time message:string reason:string status:string type:string
MetricValueStatus averageUtilization:int32 averageValue:quantity value:quantity
ContainerResourceMetricStatus container:string current:MetricValueStatus name:string
ExternalMetricStatus current:MetricValueStatus metric:MetricIdentifier
ObjectMetricStatus current:MetricValueStatus describedObject:CrossVersionObjectReference metric:MetricIdentifier
PodsMetricStatus current:MetricValueStatus metric:MetricIdentifier
ResourceMetricStatus current:MetricValueStatus name:string
MetricStatus containerResource:ContainerResourceMetricStatus external:ExternalMetricStatus object:ObjectMetricStatus pods:PodsMetricStatus resource:ResourceMetricStatus type:string
HorizontalPodAutoscalerStatus conditions:[HorizontalPodAutoscalerCondition@type] currentMetrics:[MetricStatus] currentReplicas:int32 desiredReplicas:int32 lastScaleTime:time observedGeneration:int64
HorizontalPodAutoscaler apiVersion:string kind:string metadata:ObjectMeta spec:HorizontalPodAutoscalerSpec status:HorizontalPodAutoscalerStatus

NetworkPolicyPort endPort:int32 port:intstr protocol:string(SCTP|TCP|UDP)
IPBlock cidr:string except:[string]
NetworkPolicyPeer ipBlock:IPBlock namespaceSelector:LabelSelector podSelector:LabelSelector
NetworkPolicyEgressRule ports:[NetworkPolicyPort] to:[NetworkPolicyPeer]
NetworkPolicyIngressRule from:[NetworkPolicyPeer] ports:[NetworkPolicyPort]
NetworkPolicySpec egress:[NetworkPolicyEgressRule] ingress:[NetworkPolicyIngressRule] podSelector:LabelSelector policyTypes:[string(Egress|Ingress)]
NetworkPolicy apiVersion:string kind:string metadata:ObjectMeta spec:NetworkPolicySpec
";
