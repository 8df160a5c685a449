#include "parallel/sequence/block_attention.h"

#include <fmt/format.h>

#include <exception>

#include "core/error.h"

namespace tutti::parallel::sequence {

template <class Call>
void BlockAttention::guarded(const char* pass, const Call& call) const {
  std::string why = "what was thrown is no std::exception";
  try {
    return call();
  } catch (const std::exception& e) {
    why = e.what();
  } catch (...) {  // said above
  }
  const Axis& first = *job_.front();
  const int rank = first.world_rank(first.rank());
  const std::string message =
      fmt::format("{}: the kernel's {} failed on rank {}: {}", what_, pass, rank, why);
  for (Axis* axis : job_) axis->abort(message);
  throw Error(ErrorCode::aborted, message, rank);
}

void BlockAttention::compute(const ForwardBlock& block) const {
  guarded("forward", [&] { kernel_.forward(block); });
}

void BlockAttention::compute(const BackwardBlock& block) const {
  guarded("backward", [&] { kernel_.backward(block); });
}

Block BlockAttention::block_of(const Part& part, const void* q, ConstantKeys keys) const {
  Block block = shape_;
  block.queries = part.queries.count;
  block.keys = part.keys.count;
  block.causal = part.causal;
  block.q = at(q, query_bytes(part.queries.first, type()));
  block.k = at(keys.k, key_bytes(part.keys.first, type()));
  block.v = at(keys.v, key_bytes(part.keys.first, type()));
  return block;
}

void BlockAttention::compute(const Part& part, ConstantKeys keys, const BackwardTensors& t,
                             const void* delta, void* dq, Keys gradients) const {
  const std::size_t skipped = query_bytes(part.queries.first, type()),
                    skipped_lse = lse_bytes(part.queries.first);
  compute(BackwardBlock{.block = block_of(part, t.q, keys),
                        .out = at(t.out, skipped),
                        .lse = at(t.lse, skipped_lse),
                        .dout = at(t.dout, skipped),
                        .delta = at(delta, skipped_lse),
                        .dq = dq,
                        .dk = gradients.k,
                        .dv = gradients.v});
}

void BlockAttention::write_delta(const BackwardTensors& t, void* delta) const {
  math().dot_rows(type(), layout_.rows * lse_row(), shape_.dim, t.out, t.dout, delta);
}

}  // namespace tutti::parallel::sequence
