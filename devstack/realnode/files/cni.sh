#!/bin/sh
# The network plugin of a real node: it gives a pod one address on the bridge. It
# is called by the names "fleetloop" and "loopback", which containerd runs before.
set -eu
dir=${0%/*}/addresses
bridge={{.Bridge}} net={{.Net}}
ns=${CNI_NETNS:-}
ns=${ns##*/}
mkdir -p "$dir"
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.3.1", "0.4.0", "1.0.0"]}' ;;
ADD)
  ip -n "$ns" link set lo up
  if [ "${0##*/}" = loopback ]; then
    echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "lo", "sandbox": "'"$CNI_NETNS"'"}], "ips": [{"address": "127.0.0.1/8", "interface": 0}]}'
    exit
  fi
  host=
  for i in $(seq {{.First}} 253); do # a file for each that is taken, made by one alone
    if (set -C; echo "$CNI_CONTAINERID" >"$dir/$i") 2>/dev/null; then host=$i; break; fi
  done
  if [ -z "$host" ]; then
    echo '{"cniVersion": "1.0.0", "code": 100, "msg": "every address of the node is taken"}'
    exit 1
  fi
  ip link add "pod$host" type veth peer name "$CNI_IFNAME" netns "$ns"
  ip link set "pod$host" master $bridge up
  ip -n "$ns" addr add "$net.$host/24" dev "$CNI_IFNAME"
  ip -n "$ns" link set "$CNI_IFNAME" up
  echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "'"$CNI_IFNAME"'", "sandbox": "'"$CNI_NETNS"'"}], "ips": [{"address": "'"$net.$host"'/24", "interface": 0}]}'
  ;;
DEL)
  [ "${0##*/}" = fleetloop ] || exit 0
  for f in "$dir"/*; do
    if [ "$(cat "$f" 2>/dev/null)" = "$CNI_CONTAINERID" ]; then
      ip link del "pod${f##*/}" 2>/dev/null || true # it went with the pod's namespace
      rm -f "$f"
    fi
  done
  ;;
esac
