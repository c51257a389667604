package consoletest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// deviceGrant is the grant type of RFC 8628.
const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

// serveDeviceCode answers a request for a device code. The interval is the shortest possible.
func (i *Issuer) serveDeviceCode(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("client_id") != ClientID || !strings.Contains(r.FormValue("scope"), "openid") {
		http.Error(w, `{"error":"invalid_client"}`, http.StatusBadRequest)
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	n := fmt.Sprint(len(i.devices))
	i.devices["secret-device-"+n] = "CODE-" + n
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"device_code": "secret-device-" + n, "user_code": "CODE-" + n, "verification_uri": i.URL + "/device",
		"verification_uri_complete": i.URL + "/device?user_code=CODE-" + n, "expires_in": 60, "interval": 1,
	})
}

// EnterUserCode plays a person who signs in and enters the user code of a device.
func (i *Issuer) EnterUserCode(tb testing.TB, userCode string) {
	tb.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	for device, c := range i.devices {
		if c == userCode {
			i.devices[device] = ""
			return
		}
	}
	tb.Errorf("no device login has the user code %q", userCode)
}

// redeemDeviceCode checks a request for the tokens of a device. A code counts once.
func (i *Issuer) redeemDeviceCode(deviceCode string) (oauthError string) {
	code, ok := i.devices[deviceCode]
	switch {
	case !ok:
		return "invalid_grant"
	case code != "":
		return "authorization_pending"
	}
	delete(i.devices, deviceCode)
	return ""
}
