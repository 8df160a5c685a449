# The library's headers that are installed, and so all that programs and engines are built upon
# (docs.layers tests it).

# The interface, <tutti/core/types.h>. These headers include each other by relative paths, so that a
# program needs only <prefix>/include.
set(TUTTI_PUBLIC_HEADERS
  tutti.h
  core/background.h
  core/types.h
  core/error.h
  core/memory.h
  collectives/collective.h
  comm/call.h
  comm/communicator.h
  comm/elastic.h
  comm/named_calls.h
  comm/window.h
  bootstrap/unique_id.h)

# What Tutti's own engines and bindings include besides, as "core/convert.h": numbers, texts, loops on
# vectors, a GPU's memory, the simulator. They are installed below include/tutti/internal, and promise
# nothing: the next version may have others.
set(TUTTI_INTERNAL_HEADERS
  execute/cuda/element.h
  execute/cuda/engine_device.h
  execute/cuda/memory.h
  execute/cuda/narrow_float.h
  execute/cuda/portable.h
  collectives/model/simulate.h
  collectives/model/wires.h
  core/combine.h
  core/combine_vectors-inl.h
  core/compressed.h
  core/convert.h
  core/file_descriptor.h
  core/highway-inl.h
  core/host_memory.h
  core/instruction_sets.h
  core/line.h
  core/log_line.h
  core/module.h
  core/nearest.h
  core/number.h
  core/supported_targets.h
  core/svg.h
  device/gpus.h)
