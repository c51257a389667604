// Package client calls the fleet API.
//
//	c, err := client.New(client.Config{
//		Endpoint: "https://fleet.example.com",
//		Token:    client.FileToken("/var/run/secrets/fleet/token"),
//	})
//	if err != nil {
//		return err
//	}
//	for cluster, err := range c.Clusters().List(ctx, client.ListOptions{Labels: "region=eu"}) {
//		if err != nil {
//			return err
//		}
//		fmt.Println(cluster.Name, cluster.Status.Phase)
//	}
//
// A Client hands out smaller clients, which share its connections: [Client.Clusters] and
// [Client.Collection] for resources, [Client.Syncs], [Client.ChangeEvents] and [Client.Schemas].
// [Client.Raw] serves programs that decode responses themselves. The types of requests and
// responses are those of package api/fleet/v1.
//
// # Lists and watches
//
// Lists and watches are iterators. They send the first request when the loop begins, and can be
// used again. A list ends with the first error. A watch reconnects where it was interrupted, and
// ends only with an error that a retry does not solve.
//
// # Concurrency
//
// All types except the iterators in use are safe for concurrent use. The package has no global
// state. Each call takes a context, and ends soon after the context does, with its cause.
//
// # Reading your own writes
//
// A server may read from a standby of its database. A client remembers the tokens of its writes for
// two minutes and sends the latest with its reads, so that they find what it wrote. The clients that
// [Client.WithToken] returns share the tokens. With Config.ReadLatest, reads find the writes of all clients.
//
// # Limits
//
// Each attempt of a request has a timeout, which includes reading the response body, and bodies
// have a maximum size. For streams only the silence of the server is limited. The proxy comes from
// the environment, as described by [net/http.ProxyFromEnvironment]. Redirects are followed only for
// GET and on the same host, because the token goes with them.
//
// # Retries
//
// A request is sent up to [Config.MaxAttempts] times, after delays that grow with random jitter. A
// Retry-After header lengthens the delay; if it asks for more than 30 seconds, the call returns the
// error at once. What is retried depends on the effect of a repetition:
//
//   - Every request is retried if no connection came about, or for 429 Too Many Requests: the
//     server has not processed it.
//   - For other server errors and for missing responses, only idempotent requests are: Get, List,
//     Delete, Report and other reads and replacements, PatchIf with an ETag, and Resend. The second
//     attempt may meet the effect of the first: Delete may then return an error for which
//     [IsNotFound] is true, and PatchIf one for which [IsChanged] is true.
//   - Load and the methods of Raw are never retried.
//
// After 401 Unauthorized a request is sent once more if the token source then has another token.
//
// # Errors
//
// An unsuccessful response is an [*Error] with the status and the problem that the server sent; use errors.As, or the
// predicates such as [IsNotFound]. [ErrUnreachable] means that no response arrived, and [ErrInvalidResponse] that the
// response is not one of a fleet API. Errors never contain the token.
//
// # Compatibility
//
// The package follows the semantic version of its module. Within a major version no exported
// identifier is removed or changed in meaning. Structs may get new fields, so use field names in
// literals; interfaces that callers implement get no new methods. Texts of errors are not covered.
// Before version 1.0.0 a minor version may break this, and the changelog says so.
//
// A client works with servers of its own minor version and of the one before. Methods that a server
// does not have yet return an error for which IsNotFound is true, or errors.ErrUnsupported. Fields
// that a newer server adds are ignored. The latest two minor versions get fixes.
package client
