#include "tests/parallel/pipeline_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "parallel/pipeline/schedule.h"

namespace tutti::test {
namespace {

using namespace parallel::pipeline;

/// A byte that depends on all of it.
std::byte mix(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
  std::uint64_t x =
      a * 0x9e37'79b9'7f4a'7c15 + b * 0xbf58'476d'1ce4'e5b9 + c * 0x94d0'49bb'1331'11eb + d;
  x ^= x >> 31;
  x *= 0xd6e8'feb8'6659'fd93;
  return static_cast<std::byte>(x >> 56);
}

/// What a stage makes of `in`, for a result of `bytes`; `kind` tells forwards and backwards apart.
std::vector<std::byte> made_of(int kind, int stage, int micro_batch, std::span<const std::byte> in,
                               std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  const auto key =
      static_cast<std::uint64_t>(stage) * 1000 + static_cast<std::uint64_t>(micro_batch);
  for (std::size_t i = 0; i < bytes; ++i) {
    const auto from = in.empty() ? std::byte{} : in[i % in.size()];
    out[i] = mix(static_cast<std::uint64_t>(kind), key, i, static_cast<std::uint64_t>(from));
  }
  return out;
}

}  // namespace

PipelineModel::PipelineModel(const Schedule& schedule, std::vector<std::size_t> bytes)
    : schedule_(schedule), bytes_(std::move(bytes)) {
  const int last = schedule_.stages() - 1;
  const auto size = [&](int boundary) { return bytes_[static_cast<std::size_t>(boundary)]; };
  activations_.resize(at(last, schedule_.micro_batches - 1) + 1);
  gradients_.resize(activations_.size());
  states_.resize(activations_.size());
  weights_.resize(activations_.size());
  for (int m = 0; m < schedule_.micro_batches; ++m) {
    for (int s = 0; s < last; ++s) {
      const Bytes before = s == 0 ? Bytes{} : activations_[at(s - 1, m)];
      activations_[at(s, m)] = made_of(1, s, m, before, size(s));
    }
    for (int s = last; s > 0; --s) {
      const Bytes after = s == last ? Bytes{} : gradients_[at(s + 1, m)];
      gradients_[at(s, m)] = made_of(2, s, m, after, size(s - 1));
    }
  }
}

std::size_t PipelineModel::at(int stage, int micro_batch) const {
  return static_cast<std::size_t>(stage) * static_cast<std::size_t>(schedule_.micro_batches) +
         static_cast<std::size_t>(micro_batch);
}

void PipelineModel::check_given(const char* what, int stage, int micro_batch, const Bytes& expected,
                                Stages::In in) const {
  if (std::equal(in.begin(), in.end(), expected.begin(), expected.end())) return;
  throw std::runtime_error(fmt::format("stage {} was given a wrong {} of micro-batch {} ({} bytes)",
                                       stage, what, micro_batch, in.size()));
}

void PipelineModel::advance(int stage, int micro_batch, State from, State to) {
  State& state = states_[at(stage, micro_batch)];
  if (state != from) throw std::runtime_error("called twice, or in a wrong order");
  state = to;
}

Stages PipelineModel::stages() {
  Stages stages;
  const int last = schedule_.stages() - 1;
  stages.forward = [this](int s, int m, Stages::In in, Stages::Out out) {
    advance(s, m, State::before, State::forward);
    check_given("activation", s, m, s == 0 ? Bytes{} : activations_[at(s - 1, m)], in);
    std::ranges::copy(made_of(1, s, m, in, out.size()), out.begin());
  };
  stages.backward_inputs = [this, last](int s, int m, Stages::In in, Stages::Out out) {
    advance(s, m, State::forward, State::inputs);
    check_given("gradient", s, m, s == last ? Bytes{} : gradients_[at(s + 1, m)], in);
    std::ranges::copy(made_of(2, s, m, in, out.size()), out.begin());
  };
  stages.backward_weights = [this](int s, int m) {
    advance(s, m, State::inputs, State::before);
    ++weights_[at(s, m)];
  };
  return stages;
}

std::string PipelineModel::check(int rank, int steps) const {
  for (int s = 0; s < schedule_.stages(); ++s) {
    for (int m = 0; m < schedule_.micro_batches; ++m) {
      const int expected = schedule_.rank_of(s) == rank ? steps : 0;
      if (states_[at(s, m)] != State::before || weights_[at(s, m)] != expected) {
        return fmt::format("stage {} has done its backward of micro-batch {} {} times, not {}", s,
                           m, weights_[at(s, m)], expected);
      }
    }
  }
  return "";
}

}  // namespace tutti::test
