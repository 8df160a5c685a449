// Passes through tensor-, sequence-, ... parallel layers with small whole numbers, for programs on
// the host and on a GPU (gpu_model.h). Sums over ranks are exact in float32, so both end at the
// same bits.
#pragma once

#include <cstddef>
#include <vector>

#include "parallel/domain/halo.h"
#include "parallel/expert/expert_parallel.h"
#include "parallel/pipeline/execute.h"
#include "parallel/sequence/attention.h"
#include "tests/parallel/gpu_model.h"

namespace tutti::test {

/// How a tensor-parallel network passes its activations on.
struct TensorWay {
  bool sequence = false;
  std::size_t pieces = 1;
  bool keeps_gathered = false;
  bool whole_between = false;  // gather_output, and input_is_parallel not
  bool adds = false;           // to gradients that are there
};
/// An embedding and two linear layers, forward and backward; then a tensor is reduced to slices of
/// a dimension inside. Returns what the rank has then.
std::vector<float> pass_tensor_layers(Program& program, parallel::Axis& axis, const TensorWay& way);
/// The losses of some rows, and the gradients of their logits.
std::vector<float> pass_cross_entropy(Program& program, parallel::Axis& axis);
/// An attention forward and backward, by a kernel whose work is on the program's device.
struct AttentionWay {
  parallel::sequence::AttentionOptions options{};
  DataType type = DataType::float32;
  std::size_t kv_heads = 4;
};
std::vector<float> pass_attention(Program& program, parallel::sequence::AttentionAxes axes,
                                  const parallel::sequence::Kernel& kernel,
                                  const AttentionWay& way);
/// Two steps of a pipeline whose stages compute with kernels.
std::vector<float> pass_pipeline(Program& program, parallel::Axis& axis,
                                 const parallel::pipeline::Schedule& schedule);
/// Experts, forward and backward; the last of several ranks has no tokens.
std::vector<float> pass_experts(Program& program, parallel::Axis& axis,
                                const parallel::expert::ExpertOptions& options);
/// Parameters with copies: their values, gradients, and norm.
std::vector<float> pass_shared_gradients(Program& program, parallel::Axis& axis);
/// Two exchanges of a halo, there and back.
std::vector<float> pass_halo(Program& program, parallel::Axis& axis,
                             const parallel::domain::HaloShape& shape);

}  // namespace tutti::test
