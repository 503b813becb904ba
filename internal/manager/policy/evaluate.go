package policy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"sigs.k8s.io/yaml"
)

// Evaluator evaluates policies with the code of the API server, for servers that
// have no ValidatingAdmissionPolicies. Its methods may be called at the same time.
type Evaluator struct {
	hooks      []validating.PolicyHook
	dispatcher generic.Dispatcher[validating.PolicyHook]
	objects    admission.ObjectInterfaces
}

// NewEvaluator returns an evaluator of the policies that are bound in the
// manifests. The lister and the client provide namespaces, the authorizer answers
// the policies' questions about rights.
func NewEvaluator(manifests []byte, namespaces corelisters.NamespaceLister, client kubernetes.Interface, rights authorizer.Authorizer) (*Evaluator, error) {
	policies, bindings, err := readPolicies(manifests)
	if err != nil {
		return nil, err
	}
	matcher := generic.NewPolicyMatcher(matching.NewMatcher(namespaces, client))
	e := &Evaluator{dispatcher: validating.NewDispatcher(rights, matcher), objects: admission.NewObjectInterfacesFromScheme(runtime.NewScheme())}
	for _, p := range policies {
		hook := validating.PolicyHook{Policy: p}
		for _, b := range bindings {
			if b.Spec.PolicyName == p.Name {
				hook.Bindings = append(hook.Bindings, b)
			}
		}
		if hook.Evaluator, err = compilePolicy(p, environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()), environment.StoredExpressions); err != nil {
			return nil, fmt.Errorf("policy %s: %w", p.Name, err)
		}
		e.hooks = append(e.hooks, hook)
	}
	if len(e.hooks) == 0 {
		return nil, errors.New("the manifests contain no ValidatingAdmissionPolicy: use those that the chart renders")
	}
	return e, nil
}

// Evaluate returns nil, or why the request is denied: the error that an API server
// with these policies returns.
func (e *Evaluator) Evaluate(ctx context.Context, req *admissionv1.AdmissionRequest) error {
	object, err := decodeObject(req.Object.Raw)
	if err != nil {
		return fmt.Errorf("read the object: %w", err)
	}
	old, err := decodeObject(req.OldObject.Raw)
	if err != nil {
		return fmt.Errorf("read the old object: %w", err)
	}
	extra := make(map[string][]string, len(req.UserInfo.Extra))
	for key, values := range req.UserInfo.Extra {
		extra[key] = values
	}
	return e.dispatcher.Dispatch(ctx, admission.NewAttributesRecord(object, old,
		schema.GroupVersionKind(req.Kind), req.Namespace, req.Name, schema.GroupVersionResource(req.Resource), req.SubResource,
		admission.Operation(req.Operation), nil, req.DryRun != nil && *req.DryRun,
		&user.DefaultInfo{Name: req.UserInfo.Username, UID: req.UserInfo.UID, Groups: req.UserInfo.Groups, Extra: extra},
	), e.objects, e.hooks)
}

// decodeObject reads an object as it was sent: its fields are those of the API
// server's version, which its own policies would see too.
func decodeObject(raw []byte) (runtime.Object, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil //nolint:nilnil // no object is how the API server represents it
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &object.Object); err != nil {
		return nil, err
	}
	return object, nil
}

// readPolicies reads manifests strictly and fills in the defaults of the API server.
func readPolicies(manifests []byte) (policies []*validating.Policy, bindings []*validating.PolicyBinding, err error) {
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifests)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return policies, bindings, nil
		}
		if err != nil {
			return nil, nil, err
		}
		var meta metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(doc, &meta); err != nil {
			return nil, nil, err
		}
		var object any
		switch meta.Kind {
		case "":
			continue // comments
		case "ValidatingAdmissionPolicy":
			p := &validating.Policy{Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConstraints: matchAll()}}
			policies, object = append(policies, p), p
		case "ValidatingAdmissionPolicyBinding":
			b := &validating.PolicyBinding{Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{MatchResources: matchAll()}}
			bindings, object = append(bindings, b), b
		default:
			return nil, nil, fmt.Errorf("%s %s is no policy", meta.Kind, meta.Name)
		}
		if err := yaml.UnmarshalStrict(doc, object); err != nil {
			return nil, nil, fmt.Errorf("%s %s: %w", meta.Kind, meta.Name, err)
		}
	}
}

// matchAll returns the API server's defaults of what a policy and a binding match.
func matchAll() *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}, MatchPolicy: new(admissionregistrationv1.Equivalent),
	}
}

// compilePolicy compiles a policy as the API server does. An expression that does
// not compile is an error here: the API server has checked those that it stores.
func compilePolicy(p *validating.Policy, env *environment.EnvSet, kind environment.Type) (validating.Validator, error) {
	compiler, err := cel.NewCompositedCompiler(env)
	if err != nil {
		return nil, err
	}
	withRights, without := cel.OptionalVariableDeclarations{HasAuthorizer: true}, cel.OptionalVariableDeclarations{}
	var errs []error
	for _, v := range p.Spec.Variables {
		result := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, withRights, kind)
		if result.Error != nil {
			errs = append(errs, fmt.Errorf("variable %s: %w", v.Name, result.Error))
		}
	}
	compile := func(expressions []cel.ExpressionAccessor, options cel.OptionalVariableDeclarations) cel.ConditionEvaluator {
		evaluator := compiler.CompileCondition(expressions, options, kind)
		errs = slices.Concat(errs, evaluator.CompilationErrors())
		return evaluator
	}
	conditions := make([]cel.ExpressionAccessor, len(p.Spec.MatchConditions))
	for i := range p.Spec.MatchConditions {
		conditions[i] = (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i])
	}
	validations, messages := make([]cel.ExpressionAccessor, len(p.Spec.Validations)), make([]cel.ExpressionAccessor, len(p.Spec.Validations))
	for i, v := range p.Spec.Validations {
		validations[i] = &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason}
		if v.MessageExpression != "" {
			messages[i] = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
	}
	matcher := matchconditions.NewMatcher(compile(conditions, withRights), p.Spec.FailurePolicy, "policy", "validate", p.Name)
	validator := validating.NewValidator(compile(validations, withRights), matcher, compile(nil, withRights), compile(messages, without), p.Spec.FailurePolicy, nil)
	return validator, errors.Join(errs...)
}
