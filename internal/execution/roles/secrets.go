package roles

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// SecretLookup is the service account that looks up Secrets. It is separate from the accounts of
// actions, so that actions do not get its right to read Secrets.
const SecretLookup = "kubernaut-secret-lookup"

// asTable requests an object as the table that kubectl prints. For a Secret the table holds name,
// type and number of values, but no values.
const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"

// SecretType reports whether a Secret exists, and its type. It uses SecretLookup, and the values of
// the Secret stay in the API server. The error is a *MissingError if that account does not exist,
// and an API error if the account may not get the Secret.
func (i *Identities) SecretType(ctx context.Context, namespace, name string) (secretType string, found bool, err error) {
	if _, err := i.getOrCreateAccount(SecretLookup).getOrRequestToken(ctx, ""); err != nil {
		return "", false, err
	}
	c, err := i.secrets()
	if err != nil {
		return "", false, fmt.Errorf("connect as %s: %w", i.getOrCreateAccount(SecretLookup), err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	text, err := c.Get().Namespace(namespace).Resource("secrets").Name(name).
		SetHeader("Accept", asTable).Param("includeObject", string(metav1.IncludeNone)).DoRaw(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("look up Secret %s/%s: %w", namespace, name, err)
	}
	var table metav1.Table
	if err := json.Unmarshal(text, &table); err != nil {
		return "", false, fmt.Errorf("look up Secret %s/%s: read the table: %w", namespace, name, err)
	}
	column := slices.IndexFunc(table.ColumnDefinitions, func(c metav1.TableColumnDefinition) bool { return c.Name == "Type" })
	if column < 0 || len(table.Rows) != 1 || len(table.Rows[0].Cells) <= column {
		return "", false, fmt.Errorf("look up Secret %s/%s: the API server's table has no type", namespace, name)
	}
	secretType, ok := table.Rows[0].Cells[column].(string)
	if !ok {
		return "", false, fmt.Errorf("look up Secret %s/%s: the type in the API server's table is not a string", namespace, name)
	}
	return secretType, true, nil
}

// newCoreRESTClient creates a client for the core API group.
func newCoreRESTClient(cfg *rest.Config) (rest.Interface, error) {
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return c.CoreV1().RESTClient(), nil
}
