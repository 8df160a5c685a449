// Which rows go to which expert, and the exchange of their counts. travel.cpp moves them.
#include "parallel/expert/expert_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "parallel/agreement.h"
#include "parallel/in_flight.h"
#include "parallel/tensor/pairs.h"

namespace tutti::parallel::expert {
namespace {

std::string described(const ExpertShape& s, const ExpertOptions& o) {
  return fmt::format("{} experts of width {}, {}, top {}, capacity factor {}, overlap {}",
                     s.experts, s.width, name(s.type), s.top_k,
                     o.capacity_factor ? fmt::format("{}", *o.capacity_factor) : "none", o.overlap);
}

}  // namespace

ExpertParallel::ExpertParallel(Axis& axis, ExpertShape shape, ExpertOptions options)
    : axis_(axis),
      shape_(std::move(shape)),
      options_(options),
      what_(fmt::format("experts '{}'", shape_.name)),
      memory_(MemoryPool::Reuse::no, axis.device()) {
  const std::string line = described(shape_, options_);
  agree(axis_, what_, {&line, 1});
  label_ = axis_.new_label(what_);
  layer_math_of(axis_.device(), what_);
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", what_, why));
  };
  if (shape_.experts == 0) refuse("0 experts; take one for each rank at least");
  local_ = tensor::share_of(axis_, what_, "experts", shape_.experts);
  if (shape_.width == 0) refuse("rows of 0 elements");
  if (!is_valid(shape_.type) || !is_float(shape_.type)) {
    refuse(fmt::format("rows of {}; take a floating-point type", name(shape_.type)));
  }
  if (shape_.top_k == 0 || shape_.top_k > shape_.experts) {
    refuse(fmt::format("top {} of {} experts; take 1 to {} of them", shape_.top_k, shape_.experts,
                       shape_.experts));
  }
  if (options_.capacity_factor &&
      !(*options_.capacity_factor > 0 && std::isfinite(*options_.capacity_factor))) {
    refuse(fmt::format("capacity factor {}; take one above 0, or none for experts that take all",
                       *options_.capacity_factor));
  }
  row_bytes_ = shape_.width * size_of(shape_.type);
}

void ExpertParallel::check(const Routing& routing) const {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", what_, why));
  };
  if (routing.top_k != shape_.top_k) {
    refuse(fmt::format("a routing to the top {}, but the layer has top {}", routing.top_k,
                       shape_.top_k));
  }
  if (routing.experts.size() % shape_.top_k != 0 ||
      routing.weights.size() != routing.experts.size()) {
    refuse(fmt::format("a routing of {} experts and {} weights; give {} of each for a token",
                       routing.experts.size(), routing.weights.size(), shape_.top_k));
  }
  const auto experts = static_cast<std::int64_t>(shape_.experts);
  for (std::size_t c = 0; c < routing.experts.size(); ++c) {
    const std::int64_t e = routing.experts[c];
    if (e >= 0 && e < experts) continue;
    refuse(fmt::format("choice {} of token {} is expert {}, but there are experts 0 to {}",
                       c % shape_.top_k, c / shape_.top_k, e, experts - 1));
  }
}

std::vector<bool> ExpertParallel::within_capacity(const Routing& routing) const {
  const std::size_t k = shape_.top_k, tokens = routing.tokens();
  std::vector<bool> taken(routing.experts.size(), true);
  if (!options_.capacity_factor) return taken;
  const double wanted = *options_.capacity_factor * static_cast<double>(tokens * k) /
                        static_cast<double>(shape_.experts);
  const double most = std::max(1.0, std::ceil(wanted));
  std::vector<std::size_t> rows(shape_.experts);
  for (std::size_t j = 0; j < k; ++j) {
    for (std::size_t t = 0; t < tokens; ++t) {
      std::size_t& of_expert = rows[static_cast<std::size_t>(routing.experts[t * k + j])];
      taken[t * k + j] = static_cast<double>(of_expert) < most;
      if (taken[t * k + j]) ++of_expert;
    }
  }
  return taken;
}

void ExpertParallel::place(const Routing& routing, Saved& saved) const {
  const auto ranks = static_cast<std::size_t>(axis_.size());
  const std::vector<bool> taken = within_capacity(routing);
  const auto owner = [&](std::size_t c) {
    const auto e = static_cast<std::size_t>(routing.experts[c]);
    return std::pair{e % local_, e / local_};  // its wave, its rank
  };
  for (Saved::Wave& w : saved.waves_) w.sent.assign(ranks, 0);
  for (std::size_t c = 0; c < taken.size(); ++c) {
    const auto [wave, rank] = owner(c);
    if (taken[c]) ++saved.waves_[wave].sent[rank];
  }
  std::vector<std::size_t> next;  // row of each wave and rank
  std::size_t rows = 0;
  for (Saved::Wave& w : saved.waves_) {
    w.sent_at = rows;
    for (const std::size_t count : w.sent) {
      next.push_back(rows);
      rows += count;
    }
  }
  saved.dropped_ = taken.size() - rows;
  saved.tokens_ = routing.tokens();
  saved.weights_ = routing.weights;
  saved.row_of_.assign(taken.size(), Saved::kDropped);
  saved.choice_of_.resize(rows);
  saved.token_of_.resize(rows);
  for (std::size_t c = 0; c < taken.size(); ++c) {
    if (!taken[c]) continue;
    const auto [wave, rank] = owner(c);
    const std::size_t row = next[wave * ranks + rank]++;
    saved.row_of_[c] = static_cast<std::int64_t>(row);
    saved.choice_of_[row] = c;
    saved.token_of_[row] = static_cast<std::int64_t>(c / shape_.top_k);
  }
}

void ExpertParallel::exchange_counts(const Routing& routing, const void* x, void* y, Saved& saved) {
  const auto ranks = static_cast<std::size_t>(axis_.size());
  saved.waves_.resize(local_);
  std::string refused;
  try {
    check(routing);
    const std::size_t count = routing.tokens() * shape_.width;
    axis_.device().check_memory(what_, {{"x", x, count}, {"y", y, count}});
    place(routing, saved);
  } catch (const Error& error) {
    refused = error.what();
  }
  // For each rank: whether this one was refused, and the rows for each of its experts.
  const std::size_t words = local_ + 1;
  std::vector<std::uint64_t> out(ranks * words), in(ranks * words);
  for (std::size_t r = 0; r < ranks; ++r) {
    out[r * words] = refused.empty() ? 0 : 1;
    for (std::size_t l = 0; l < local_ && refused.empty(); ++l) {
      out[r * words + 1 + l] = saved.waves_[l].sent[r];
    }
  }
  InFlight(what_, label_, false)
      .add(axis_, call_of(Collective::all_to_all, out.data(), in.data(), words, DataType::uint64));
  for (std::size_t r = 0; r < ranks; ++r) {
    if (in[r * words] == 0) continue;
    const int culprit = static_cast<int>(r);
    const std::string its = Agreement(axis_).text_of(culprit, refused);
    if (!refused.empty()) throw Error(ErrorCode::invalid_argument, refused);
    throw Error(ErrorCode::mismatch,
                fmt::format("{}: no token travels, for the routing of rank {} was refused: {}",
                            what_, axis_.world_rank(culprit), its),
                axis_.world_rank(culprit));
  }
  saved.received_.assign(local_, 0);
  saved.received_rows_ = 0;
  for (std::size_t l = 0; l < local_; ++l) {
    Saved::Wave& w = saved.waves_[l];
    w.received.assign(ranks, 0);
    w.received_at = saved.received_rows_;
    for (std::size_t r = 0; r < ranks; ++r) {
      w.received[r] = in[r * words + 1 + l];
      saved.received_[l] += w.received[r];
    }
    saved.received_rows_ += saved.received_[l];
  }
}

void ExpertParallel::forward(const void* x, const Routing& routing, const Forward& experts, void* y,
                             Saved& saved) {
  saved.of_ = nullptr;
  saved.label_ = label_of(label_, calls_++);  // calls of other micro-batches do not match, either
  exchange_counts(routing, x, y, saved);
  Places places{};
  or_abort({&axis_}, what_, [&] {
    if (!experts) throw Error(ErrorCode::invalid_argument, what_ + ": experts is empty");
    places = {room(saved.results_, saved.choice_of_.size()),
              room(saved.rows_, saved.received_rows_), room(results_, saved.received_rows_)};
  });
  travel(
      saved, places,
      [&](std::size_t first, std::size_t count, std::byte* rows) {
        math().take_rows(rows_of_tokens(saved, first, count), x, rows);
      },
      [&](std::size_t expert, std::size_t first, std::size_t count) {
        experts(expert, places.arrived + first * row_bytes_, count,
                places.results + first * row_bytes_);
      });
  sum_for_tokens(saved, places.sent, saved.weights_, y);
  saved.of_ = this;
}

void ExpertParallel::backward(const void* dy, const Backward& experts, Saved& saved, void* dx,
                              std::span<double> dweights) {
  Device& device = axis_.device();
  const std::size_t rows = saved.of_ == this ? saved.choice_of_.size() : 0;
  std::vector<double> products(rows), weights(rows);
  double* made = products.data();  // on the device
  Places places{};
  or_abort({&axis_}, what_, [&] {
    if (!experts) throw Error(ErrorCode::invalid_argument, what_ + ": experts is empty");
    if (saved.of_ != this) {
      throw Error(
          ErrorCode::invalid_usage,
          fmt::format("{}: the backward of no forward; pass what a forward has saved", what_));
    }
    if (dweights.size() != saved.weights_.size()) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: there are {} weights, but space for {} gradients of them", what_,
                              saved.weights_.size(), dweights.size()));
    }
    const std::size_t count = saved.tokens_ * shape_.width;
    device.check_memory(what_, {{"dy", dy, count}, {"dx", dx, count}});
    places = {room(travelling_, saved.choice_of_.size()), room(dresults_, saved.received_rows_),
              room(results_, saved.received_rows_)};
    if (device.is_gpu() && rows > 0) {
      if (products_.size() < rows * sizeof(double)) {
        products_ = memory_.allocate(rows * sizeof(double));
      }
      made = reinterpret_cast<double*>(products_.data());
    }
  });
  for (std::size_t row = 0; row < rows; ++row) weights[row] = saved.weights_[saved.choice_of_[row]];
  travel(
      saved, places,
      [&](std::size_t first, std::size_t count, std::byte* to) {
        math().scale_rows(rows_of_tokens(saved, first, count),
                          std::span(weights).subspan(first, count), dy, to,
                          saved.results_.data() + first * row_bytes_, made + first);
      },
      [&](std::size_t expert, std::size_t first, std::size_t count) {
        experts(expert, saved.rows_.data() + first * row_bytes_,
                places.arrived + first * row_bytes_, count, places.results + first * row_bytes_);
      });
  sum_for_tokens(saved, places.sent, {}, dx);
  if (made != products.data()) {
    device.read(products.data(), made, rows * sizeof(double));
    axis_.check_failure();
  }
  std::ranges::fill(dweights, 0);
  for (std::size_t row = 0; row < rows; ++row) dweights[saved.choice_of_[row]] = products[row];
}

}  // namespace tutti::parallel::expert
