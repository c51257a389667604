// Command program is what the containers of the tests run.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func main() {
	var err error
	switch os.Args[1] {
	case "say":
		fmt.Println(os.Args[2])
	case "exit":
		err = os.WriteFile("/dev/termination-log", []byte("as told"), 0o600)
		code, _ := strconv.Atoi(os.Args[2])
		if err == nil {
			os.Exit(code)
		}
	case "wait":
		time.Sleep(time.Hour)
	case "client":
		err = client(context.Background(), os.Args[2], os.Args[3])
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// client reads its own pod, and is refused what its role does not name.
func client(ctx context.Context, namespace, pod string) error {
	cfg, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	set, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	self, err := set.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return err
	}
	fmt.Println("I am", self.Spec.Containers[0].Name, "on", self.Spec.NodeName)
	if _, err := set.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		return fmt.Errorf("list secrets: want that it is refused, got: %w", err)
	}
	fmt.Println("secrets refused")
	return nil
}
