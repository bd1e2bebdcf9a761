#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A real Kubernetes control plane for tests: etcd, kube-apiserver and, when asked for,
# kube-controller-manager, on 127.0.0.1. All its state is in DIR. See README.md.

set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=common.sh
. "$here/common.sh"

usage() {
    cat <<'END'
usage: cluster.sh start DIR [--audit] [--with-kcm[=CONTROLLERS]] [--no-rbac] [--disable-admission=A,B]
       cluster.sh stop DIR                 end everything; DIR keeps the logs, the objects are gone
       cluster.sh kill DIR PROGRAM         SIGKILL
       cluster.sh restart DIR PROGRAM      kill if it runs, start with the same arguments, wait until ready
       cluster.sh compact DIR              forget the history: watches and lists from an old version get 410
       cluster.sh status DIR               exit status 0: all runs and is ready; 1: not all; 3: nothing runs
       cluster.sh kubeconfig DIR USER [GROUP...]            print a kubeconfig with a client certificate
       cluster.sh sa-kubeconfig DIR NAMESPACE NAME OUTFILE  write one with a token of that ServiceAccount
PROGRAM: etcd, kube-apiserver (or apiserver), kube-controller-manager (or kcm)
environment of start: APISERVER_ARGS, KCM_ARGS, ETCD_ARGS: further arguments; AUDIT_POLICY: a policy file
END
}

programs=(etcd kube-apiserver kube-controller-manager)
feature_gates=CSIStorageCapacity=true # alpha in 1.20, the rest that we use is on by default
audit_policy=$here/audit-policy.yaml
start_tries=5   # each with other ports
ready_seconds=120 # for a very busy machine; 4 s otherwise

# ---------------------------------------------------------------------------------------------------
# processes: started with a tag in their environment, and only signalled while the recorded pid has it

tag() { printf 'BERTH_CLUSTER_PROCESS=%s/%s' "$dir" "$1"; }

# running PROGRAM: sets pid
running() {
    pid=$(cat "$dir/$1.pid" 2>/dev/null) || return 1
    [[ $pid =~ ^[0-9]+$ ]] && grep -zqxF "$(tag "$1")" "/proc/$pid/environ" 2>/dev/null
}

# launch PROGRAM: with the arguments in DIR/PROGRAM.args, one a line
launch() {
    local command
    mapfile -t command <"$dir/$1.args"
    rm -f "$dir/$1.pid"
    # The process itself records its pid before it becomes PROGRAM: whenever we die, `stop` finds it.
    # It must not inherit the lock, and setsid keeps a terminal's ^C away from it.
    # shellcheck disable=SC2016 # expanded by the inner shell
    env "$(tag "$1")" setsid bash -c 'echo $$ >"$0" && exec "$@"' "$dir/$1.pid" \
        "$KUBERNETES_BIN/$1" "${command[@]}" >>"$dir/$1.log" 2>&1 </dev/null 9>&- &
    disown # so that bash does not report how it ends
    until [[ -s $dir/$1.pid ]]; do sleep 0.01; done
}

# end PROGRAM: there is nothing to save, so SIGKILL; returns when it is gone
end() {
    local i
    if running "$1"; then
        kill -KILL "$pid" 2>/dev/null || true
        for ((i = 0; i < 1000; i++)); do
            running "$1" || break
            sleep 0.02
        done
        ! running "$1" || die "$1 (pid $pid) does not end"
    fi
    rm -f "$dir/$1.pid"
}

# wait_ready PROGRAM: 0 ready; 1 it ended
wait_ready() {
    local deadline=$((SECONDS + ready_seconds))
    until "ready_$1"; do
        running "$1" || return 1
        ((SECONDS < deadline)) || die "$1 is not ready after $ready_seconds s; see $dir/$1.log"
        sleep 0.03
    done
}

admin_curl() {
    curl -sf --max-time 5 -o /dev/null --cacert "$dir/pki/ca.crt" \
        --cert "$dir/pki/admin.crt" --key "$dir/pki/admin.key" "$@"
}

# Asked with its certificate: somebody else's server on a port that we have lost is not ours.
ready_etcd() {
    curl -sf --max-time 2 -o /dev/null --cacert "$dir/pki/etcd.crt" --cert "$dir/pki/etcd.crt" \
        --key "$dir/pki/etcd.key" "https://127.0.0.1:$ETCD_PORT/health"
}
ready_kube-apiserver() { admin_curl "https://127.0.0.1:$API_PORT/readyz"; }
ready_kube-controller-manager() { admin_curl "https://127.0.0.1:$KCM_PORT/healthz"; }

show_log() {
    printf '%s: %s ended; the end of %s:\n' "${0##*/}" "$1" "$dir/$1.log" >&2
    tail -n 15 "$dir/$1.log" >&2
}

# ---------------------------------------------------------------------------------------------------
# certificates

# One self-signed certificate is etcd's server and only client, so nobody else gets in.
make_etcd_pki() {
    [[ -f $dir/pki/etcd.crt ]] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
        -keyout "$dir/pki/etcd.key" -out "$dir/pki/etcd.crt" -days 3650 -subj /CN=etcd \
        -addext subjectAltName=IP:127.0.0.1 -addext extendedKeyUsage=serverAuth,clientAuth 2>"$dir/openssl.log"
}

# sign NAME SUBJECT USAGE [SUBJECT_ALT_NAME]: makes NAME.key and NAME.crt
sign() {
    openssl req -x509 -CA "$dir/pki/ca.crt" -CAkey "$dir/pki/ca.key" -newkey ec \
        -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$1.key" -out "$1.crt" -days 3650 -subj "$2" \
        -addext basicConstraints=critical,CA:FALSE -addext "extendedKeyUsage=$3" \
        ${4:+-addext "subjectAltName=$4"} 2>>"$dir/openssl.log"
}

make_service_account_key() {
    local key=$dir/pki/service-account
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:prime256v1 -out "$key.key"
    openssl pkey -in "$key.key" -pubout -out "$key.pub"
}

make_pki() {
    local names=DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc
    local pki=$dir/pki job jobs=()
    [[ ! -f $pki/complete ]] || return 0
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$pki/ca.key" \
        -out "$pki/ca.crt" -days 3650 -subj /CN=berth-test-ca -addext keyUsage=critical,keyCertSign,cRLSign \
        2>>"$dir/openssl.log"
    make_service_account_key &
    jobs+=($!)
    sign "$pki/server" /CN=kubernetes serverAuth "$names,IP:127.0.0.1,IP:10.96.0.1" &
    jobs+=($!)
    sign "$pki/admin" /O=system:masters/CN=kubernetes-admin clientAuth &
    jobs+=($!)
    sign "$pki/kcm" /CN=system:kube-controller-manager clientAuth &
    jobs+=($!)
    for job in "${jobs[@]}"; do
        wait "$job" || die "openssl failed; see $dir/openssl.log"
    done
    touch "$pki/complete"
}

# inline_authority: as kubeadm writes it
inline_authority() {
    printf 'certificate-authority-data: %s' "$(base64 -w 0 "$dir/pki/ca.crt")"
}

# write_kubeconfig AUTHORITY CREDENTIALS: to standard output; both are the inside of a YAML flow mapping
write_kubeconfig() {
    cat <<END
apiVersion: v1
kind: Config
clusters:
- name: berth-test
  cluster: {server: "https://127.0.0.1:$API_PORT", $1}
users:
- name: user
  user: {$2}
contexts:
- name: default
  context: {cluster: berth-test, user: user}
current-context: default
END
}

# certificate_credentials NAME
certificate_credentials() {
    printf 'client-certificate-data: %s, client-key-data: %s' \
        "$(base64 -w 0 "$1.crt")" "$(base64 -w 0 "$1.key")"
}

# ---------------------------------------------------------------------------------------------------
# arguments of the programs

write_etcd_args() {
    local extra=() tls=$dir/pki/etcd
    read -ra extra <<<"${ETCD_ARGS:-}"
    # The short times let a lone member elect itself at once.
    printf '%s\n' --name=default --data-dir="$dir/etcd/data" \
        --listen-client-urls="https://127.0.0.1:$ETCD_PORT" --advertise-client-urls="https://127.0.0.1:$ETCD_PORT" \
        --listen-peer-urls="https://127.0.0.1:$ETCD_PEER_PORT" \
        --initial-advertise-peer-urls="https://127.0.0.1:$ETCD_PEER_PORT" \
        --initial-cluster="default=https://127.0.0.1:$ETCD_PEER_PORT" \
        --cert-file="$tls.crt" --key-file="$tls.key" --trusted-ca-file="$tls.crt" --client-cert-auth \
        --peer-cert-file="$tls.crt" --peer-key-file="$tls.key" --peer-trusted-ca-file="$tls.crt" \
        --peer-client-cert-auth --heartbeat-interval=20 --election-timeout=200 \
        --quota-backend-bytes=8589934592 --logger=zap --log-level=warn "${extra[@]}" >"$dir/etcd.args"
}

write_apiserver_args() {
    local extra=() pki=$dir/pki authorization=Node,RBAC args
    ((rbac)) || authorization=AlwaysAllow
    read -ra extra <<<"${APISERVER_ARGS:-}"
    args=(--etcd-servers="https://127.0.0.1:$ETCD_PORT" --etcd-cafile="$pki/etcd.crt"
        --etcd-certfile="$pki/etcd.crt" --etcd-keyfile="$pki/etcd.key"
        --bind-address=127.0.0.1 --secure-port="$API_PORT"
        --endpoint-reconciler-type=none # it would refuse a loopback address
        --tls-cert-file="$pki/server.crt" --tls-private-key-file="$pki/server.key"
        --client-ca-file="$pki/ca.crt" --authorization-mode="$authorization"
        # without a front proxy's CA kube-controller-manager crashes when the API server restarts
        --requestheader-client-ca-file="$pki/ca.crt" --requestheader-allowed-names=front-proxy-client
        --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group
        --requestheader-extra-headers-prefix=X-Remote-Extra-
        --service-account-key-file="$pki/service-account.pub"
        --service-account-signing-key-file="$pki/service-account.key"
        --service-account-issuer=https://kubernetes.default.svc --service-cluster-ip-range=10.96.0.0/24
        --allow-privileged=true --profiling=false
        --feature-gates="$feature_gates" --runtime-config=storage.k8s.io/v1alpha1=true
        # Tests measure our own pace, not the server's limits.
        --enable-priority-and-fairness=false --max-requests-inflight=4000 --max-mutating-requests-inflight=2000)
    [[ -z $disable_admission ]] || args+=(--disable-admission-plugins="$disable_admission")
    ((!audit)) || args+=(--audit-policy-file="$audit_policy" --audit-log-path="$dir/audit.log")
    printf '%s\n' "${args[@]}" "${extra[@]}" >"$dir/kube-apiserver.args"
}

write_kcm_args() {
    local extra=() pki=$dir/pki
    read -ra extra <<<"${KCM_ARGS:-}"
    write_kubeconfig "$(inline_authority)" "$(certificate_credentials "$pki/kcm")" >"$pki/kcm.kubeconfig"
    printf '%s\n' --kubeconfig="$pki/kcm.kubeconfig" --authentication-kubeconfig="$pki/kcm.kubeconfig" \
        --authorization-kubeconfig="$pki/kcm.kubeconfig" --client-ca-file="$pki/ca.crt" \
        --bind-address=127.0.0.1 --port=0 --secure-port="$KCM_PORT" \
        --tls-cert-file="$pki/server.crt" --tls-private-key-file="$pki/server.key" \
        --service-account-private-key-file="$pki/service-account.key" --root-ca-file="$pki/ca.crt" \
        --use-service-account-credentials=true --leader-elect=false --controllers="$controllers" \
        --feature-gates="$feature_gates" "${extra[@]}" >"$dir/kube-controller-manager.args"
}

# ---------------------------------------------------------------------------------------------------
# start

# free_port NAME: sets the variable NAME. Below the range from which the kernel takes outgoing ports.
free_port() {
    local port
    while :; do
        port=$((20000 + SRANDOM % 12000))
        [[ " ${ETCD_PORT:-} ${ETCD_PEER_PORT:-} ${API_PORT:-} ${KCM_PORT:-} " == *" $port "* ]] && continue
        (: >"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
    done
    printf -v "$1" %d "$port"
}

choose_ports() {
    local name
    for name in ETCD_PORT ETCD_PEER_PORT API_PORT KCM_PORT; do free_port "$name"; done
    cat >"$dir/env" <<END
API_PORT=$API_PORT
ETCD_PORT=$ETCD_PORT
ETCD_PEER_PORT=$ETCD_PEER_PORT
KCM_PORT=$KCM_PORT
END
}

# etcd waits for the disk at every write, so its data is in memory where there is room.
make_etcd_directory() {
    local free
    remove_etcd_directory
    free=$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1) || free=0
    if ((free >= 1 << 20)) && [[ -w /dev/shm ]]; then
        ln -s "$(mktemp -d /dev/shm/berth-etcd.XXXXXXXX)" "$dir/etcd"
    else
        mkdir -m 700 "$dir/etcd"
    fi
}

remove_etcd_directory() {
    local target
    if [[ -L $dir/etcd ]]; then
        target=$(readlink "$dir/etcd")
        [[ $target != /dev/shm/berth-etcd.* ]] || rm -rf "$target"
    fi
    rm -rf "$dir/etcd"
}

lost_port_race() { grep -q 'address already in use' "$dir"/*.log; }

# try_start: sets failed to the program that ended, or to nothing. (A return status would say the same, but
# would switch off `set -e` in here.)
try_start() {
    rm -f "$dir"/{etcd,kube-apiserver,kube-controller-manager}.{log,args}
    choose_ports
    make_etcd_directory
    make_etcd_pki
    write_etcd_args
    failed=etcd
    launch etcd
    make_pki # while etcd starts
    write_kubeconfig "$(inline_authority)" "$(certificate_credentials "$dir/pki/admin")" >"$dir/kubeconfig"
    write_apiserver_args
    wait_ready etcd || return 0 # kube-apiserver tries etcd only once a second
    failed=kube-apiserver
    launch kube-apiserver
    wait_ready kube-apiserver || return 0
    if [[ -n $controllers ]]; then
        failed=kube-controller-manager
        write_kcm_args
        launch kube-controller-manager
        wait_ready kube-controller-manager || return 0
    fi
    failed=
}

# shellcheck disable=SC2317 # called by a trap
abandon_start() {
    local program
    for program in "${programs[@]}"; do end "$program"; done
    remove_etcd_directory
}

start() {
    local try program option failed
    rbac=1 audit=0 controllers='' disable_admission=''
    for option in "$@"; do
        case $option in
        --audit) audit=1 ;;
        --with-kcm) controllers=pvc-protection,pv-protection ;;
        --with-kcm=?*) controllers=${option#*=} ;;
        --no-rbac) rbac=0 ;;
        --disable-admission=*) disable_admission=${option#*=} ;;
        *) die "start: unknown option $option" ;;
        esac
    done
    [[ -z ${AUDIT_POLICY:-} ]] || audit_policy=$AUDIT_POLICY audit=1
    [[ -f $audit_policy ]] || die "no audit policy file $audit_policy"
    for program in etcd etcdctl kube-apiserver ${controllers:+kube-controller-manager} kubectl; do
        [[ -x $KUBERNETES_BIN/$program ]] || die "no $KUBERNETES_BIN/$program; run $here/setup.sh first"
    done

    mkdir -p "$dir"
    lock
    for program in "${programs[@]}"; do
        ! running "$program" || die "$program of $dir runs already"
    done
    umask 077
    mkdir -p "$dir/pki"
    rm -f "$dir/audit.log"
    trap abandon_start EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    for ((try = 1; ; try++)); do
        try_start
        [[ -n $failed ]] || break
        if ((try == start_tries)) || ! lost_port_race; then
            show_log "$failed"
            exit 1
        fi
        abandon_start
    done
    trap - EXIT INT TERM HUP
}

# ---------------------------------------------------------------------------------------------------
# the other commands

# lock: commands that change DIR take turns
lock() {
    exec 9>"$dir/lock"
    flock 9
}

stop() {
    local program
    [[ -d $dir ]] || return 0
    lock
    for program in kube-controller-manager kube-apiserver etcd; do end "$program"; done
    remove_etcd_directory
}

# program_named NAME: sets program
program_named() {
    case ${1:-} in
    apiserver) program=kube-apiserver ;;
    kcm) program=kube-controller-manager ;;
    etcd | kube-apiserver | kube-controller-manager) program=$1 ;;
    *) die "unknown program '${1:-}' (known: ${programs[*]})" ;;
    esac
}

kill_program() {
    local program
    program_named "$@"
    lock
    running "$program" || die "$program of $dir does not run"
    end "$program"
}

restart_program() {
    local program
    end "$1"
    launch "$1"
    # The API server's own readiness tells that it has found etcd again.
    for program in "$1" kube-apiserver; do
        [[ $program == "$1" ]] || running "$program" || continue
        wait_ready "$program" || {
            show_log "$program"
            exit 1
        }
    done
}

restart() {
    local program
    program_named "$@"
    [[ -f $dir/$program.args ]] || die "$program of $dir was never started"
    lock
    restart_program "$program"
}

etcdctl() {
    ETCDCTL_API=3 "$KUBERNETES_BIN/etcdctl" --endpoints="https://127.0.0.1:$ETCD_PORT" \
        --cacert="$dir/pki/etcd.crt" --cert="$dir/pki/etcd.crt" --key="$dir/pki/etcd.key" "$@"
}

compact() {
    local reply revision
    lock
    # A write moves the revision beyond every version that a client can know, so that all of them are old.
    reply=$(etcdctl put -w json /berth/compacted '')
    [[ $reply =~ \"revision\":([0-9]+) ]] || die "etcdctl put: no revision in: $reply"
    revision=${BASH_REMATCH[1]}
    etcdctl compact "$revision" >/dev/null
    # The API server answers from its watch cache what etcd has forgotten; a new one has a new cache.
    restart_program kube-apiserver
}

status() {
    local program pid all=1 any=0 state
    for program in "${programs[@]}"; do
        [[ -f $dir/$program.args ]] || continue
        if running "$program"; then
            any=1 state='not ready'
            if "ready_$program"; then state=ready; else all=0; fi
            printf '%-24s pid %-7d %-9s RSS %d MiB\n' "$program" "$pid" "$state" \
                "$(awk '/^VmRSS/ { print int($2 / 1024) }' "/proc/$pid/status")"
        else
            all=0
            printf '%-24s does not run\n' "$program"
        fi
    done
    ((any)) || return 3
    printf 'server https://127.0.0.1:%d, kubeconfig %s\n' "$API_PORT" "$dir/kubeconfig"
    ((all))
}

kubeconfig() {
    local user=${1:-} subject='' group scratch
    [[ -n $user ]] || die "kubeconfig: USER is missing"
    shift
    for group in "$@"; do subject+=/O=${group//\//\\/}; done
    subject+=/CN=${user//\//\\/}
    scratch=$(mktemp -d "$dir/pki/user.XXXXXXXX")
    sign "$scratch/user" "$subject" clientAuth || die "openssl failed; see $dir/openssl.log"
    write_kubeconfig "$(inline_authority)" "$(certificate_credentials "$scratch/user")"
    rm -rf "$scratch"
}

service_account_kubeconfig() {
    local namespace=${1:-} name=${2:-} outfile=${3:-} reply
    [[ -n $outfile ]] || die "sa-kubeconfig: NAMESPACE NAME OUTFILE are needed"
    reply=$("$KUBERNETES_BIN/kubectl" --kubeconfig="$dir/kubeconfig" create -f - \
        --raw "/api/v1/namespaces/$namespace/serviceaccounts/$name/token" <<'END'
{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86400}}
END
    )
    [[ $reply =~ \"token\":\ *\"([^\"]+)\" ]] || die "no token in the reply: $reply"
    # the authority in a file, as a pod has it
    (umask 077 && write_kubeconfig "certificate-authority: $dir/pki/ca.crt" "token: ${BASH_REMATCH[1]}" >"$outfile")
}

case ${1:-} in
-h | --help | help)
    usage
    exit
    ;;
esac
if (($# < 2)); then
    usage >&2
    exit 2
fi
verb=$1
dir=$(realpath -m -- "$2")
shift 2
case $verb in
start | stop) ;;
kill | restart | compact | status | kubeconfig | sa-kubeconfig)
    [[ -f $dir/env ]] || die "no cluster was ever started in $dir"
    # shellcheck source=/dev/null
    . "$dir/env"
    ;;
*)
    usage >&2
    exit 2
    ;;
esac
case $verb in
kill) kill_program "$@" ;;
sa-kubeconfig) service_account_kubeconfig "$@" ;;
*) "$verb" "$@" ;;
esac
