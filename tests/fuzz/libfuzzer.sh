#!/bin/sh
# Builds fuzz targets for libFuzzer: a target and its parser are instrumented (coverage, AddressSanitizer,
# UndefinedBehaviorSanitizer), and the rest is the library as it was built.
#
#     tests/fuzz/libfuzzer.sh BUILD OUT [TARGET...]      makes OUT/fuzz_TARGET; without targets all of them
#
# CLANG: clang++-16, unless it is set (clang 14 does not take the ranges of libstdc++ 12).
set -e
cd "$(dirname "$0")/../.."
build=$1 out=$2
shift 2
clang=${CLANG:-clang++-16}
flags="-std=c++20 -O1 -g1 -I. -I$build/include -I$build/interfaces -DTUTTI_VERSION=\"fuzz\" -fno-omit-frame-pointer"
sanitizers=address,undefined
mkdir -p "$out/objects"

# A target, and the sources that are its parser.
parsers='
agent_messages tools/run/agent_messages
checkpoint_header parallel/checkpoint/header parallel/checkpoint/names parallel/checkpoint/part
handshake transport/sockets/introduction transport/sockets/stream_candidate transport/sockets/waiting_room
host_lists tools/run/agent_messages tools/run/job_hosts
ids bootstrap/handle bootstrap/rendezvous_protocol bootstrap/unique_id
launch_environment bootstrap/launcher
notes transport/host/control_copy transport/host/failure transport/network/ways
plan_text collectives/text/parser core/line
rendezvous_frames bootstrap/frames bootstrap/rendezvous_protocol
rendezvous_round bootstrap/rendezvous_protocol bootstrap/rendezvous_round
reshard_layout parallel/reshard/check parallel/reshard/json parallel/reshard/layout parallel/reshard/makers
safetensors_file parallel/reshard/safetensors
schedule_text core/line parallel/pipeline/text
sealed_stream tests/fuzz/mutate transport/sockets/seal transport/sockets/stream
setting_values core/settings
tcp_wire tests/transport/wire_ends transport/network/wire_receive transport/tcp/tcp_endpoint_receive
torch_stores bootstrap/torch_store
weights_block parallel/weights/block parallel/weights/changes parallel/weights/planes
wire_control tests/transport/wire_ends transport/network/remote_link transport/network/wire_receive'

echo "$parsers" | while read -r target sources; do
  [ -n "$target" ] || continue
  case " ${*:-$target} " in *" $target "*) ;; *) continue ;; esac
  objects=
  for source in tests/fuzz/targets/$target tests/fuzz/target tests/fuzz/libfuzzer $sources; do
    object=$out/objects/$(echo "$source" | tr / _).o
    objects="$objects $object"
    [ "$object" -nt "$source.cpp" ] ||
      $clang $flags -fsanitize=fuzzer-no-link,$sanitizers -fno-sanitize-recover=all -c "$source.cpp" -o "$object"
  done
  $clang -fsanitize=fuzzer,$sanitizers $objects -o "$out/fuzz_$target" \
    -L"$build/lib" -Wl,-rpath,"$(realpath "$build/lib")" -ltutti_parallel -ltutti -lfmt -lsodium -lspdlog -lzstd
done
