// A model whose stages compute numbers that differ by stage, micro-batch and position, run by an
// Executor: every activation and gradient that a stage is given is compared, bit by bit, with what
// a single rank computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/pipeline/execute.h"

namespace tutti::test {

class PipelineModel {
 public:
  /// `bytes` as an Executor's: any sizes.
  PipelineModel(const parallel::pipeline::Schedule& schedule, std::vector<std::size_t> bytes);

  /// The functions of a rank's stages. They throw std::runtime_error when they are given anything
  /// wrong, or called twice, or in a wrong order.
  parallel::pipeline::Stages stages();
  /// What is wrong after `steps` steps, of the stages of `rank`: "" if nothing is.
  std::string check(int rank, int steps) const;

  const std::vector<std::size_t>& bytes() const { return bytes_; }

 private:
  using Bytes = std::vector<std::byte>;
  enum class State : std::uint8_t { before, forward, inputs };

  std::size_t at(int stage, int micro_batch) const;
  void check_given(const char* what, int stage, int micro_batch, const Bytes& expected,
                   parallel::pipeline::Stages::In in) const;
  void advance(int stage, int micro_batch, State from, State to);

  parallel::pipeline::Schedule schedule_;
  std::vector<std::size_t> bytes_;
  std::vector<Bytes> activations_;  // by stage and micro-batch: what its forward makes
  std::vector<Bytes> gradients_;    // the same: what its backward makes
  std::vector<State> states_;
  std::vector<int> weights_;  // how often its weights' part was done
};

}  // namespace tutti::test
