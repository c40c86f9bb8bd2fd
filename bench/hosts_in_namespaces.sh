#!/usr/bin/env bash
# Runs a program on two "hosts": network namespaces of this machine joined by a veth link, over TCP as
# on two machines, slowed down if asked to. Needs root, iproute2 and Open MPI; --delay needs the
# kernel's netem, --rate its tbf.
#
#   bench/hosts_in_namespaces.sh [--delay 100us] [--rate 10gbit] PROGRAM ARGUMENTS...
#   bench/hosts_in_namespaces.sh build/release/apps/tilewright generate --model-path MODEL \
#     --prompt "Once upon a time" --nnodes 2 --tp 2
set -euo pipefail

delay='' rate=''
while [ $# -gt 0 ]; do
  case $1 in
    --delay) delay=$2 && shift 2 ;;
    --rate) rate=$2 && shift 2 ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || { sed -n '2,8s/^# \?//p' "$0" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "$0: needs root for network namespaces" >&2; exit 2; }

readonly PREFIX=tw$$ SUBNET=10.213.77
folder=$(mktemp -d)
cleanup() {
  ip netns del "$PREFIX-0" 2>/dev/null || true
  ip netns del "$PREFIX-1" 2>/dev/null || true
  rm -rf "$folder"
}
trap cleanup EXIT

for host in 0 1; do ip netns add "$PREFIX-$host"; done
ip link add veth0 netns "$PREFIX-0" type veth peer name veth1 netns "$PREFIX-1"
for host in 0 1; do
  inside=(ip -n "$PREFIX-$host")
  "${inside[@]}" addr add "$SUBNET.$((host + 1))/24" dev "veth$host"
  "${inside[@]}" link set "veth$host" up
  "${inside[@]}" link set lo up
  shape=(tc -n "$PREFIX-$host" qdisc add dev "veth$host")
  parent=(root handle 1:)
  if [ -n "$delay" ]; then
    "${shape[@]}" "${parent[@]}" netem delay "$delay"
    parent=(parent 1: handle 2:)
  fi
  if [ -n "$rate" ]; then "${shape[@]}" "${parent[@]}" tbf rate "$rate" burst 256kb latency 50ms; fi
done

# Instead of ssh: HOST COMMAND... in the namespace of the host.
cat >"$folder/enter" <<AGENT
#!/bin/sh
host=\$1; shift
exec ip netns exec "$PREFIX-\$((\${host##*.} - 1))" sh -c "\$*"
AGENT
chmod +x "$folder/enter"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ip netns exec "$PREFIX-0" mpirun -n 2 --host "$SUBNET.1,$SUBNET.2" --map-by ppr:1:node --bind-to none \
  --mca plm_rsh_agent "$folder/enter" --mca btl tcp,self --mca btl_tcp_if_include "$SUBNET.0/24" \
  --mca oob_tcp_if_include "$SUBNET.0/24" "$@"
