// Which gradients are ready, and what follows from that. The collectives are in communicate.cpp.
#include "parallel/data_parallel/data_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "core/convert.h"
#include "core/error.h"
#include "parallel/agreement.h"
#include "parallel/broadcast.h"
#include "parallel/memory_need.h"

namespace tutti::parallel {
namespace {

std::string text_of(const Parameter& p) {
  std::string shape;
  for (const std::size_t size : p.shape)
    shape += fmt::format("{}{}", shape.empty() ? "" : ", ", size);
  return fmt::format("{}: {} [{}]", p.name, name(p.type), shape);
}

std::string text_of(const DataParallelPolicy& p) {
  std::string text = fmt::format(
      "the policy: buckets of {} and {} B, learn_order {}, overlap {}, unused {}, check_finite {}, "
      "uneven_inputs {}",
      p.first_bucket_bytes, p.bucket_bytes, p.learn_order, p.overlap,
      p.unused == Unused::error ? "error" : "zero_fill", p.check_finite, p.uneven_inputs);
  if (p.reduce_type) text += fmt::format(", reduce_type {}", name(*p.reduce_type));
  if (p.power_sgd) {
    text += fmt::format(", PowerSGD of rank {} from step {}", p.power_sgd->rank,
                        p.power_sgd->first_step);
  }
  if (p.eight_bits) {
    text += fmt::format(", 8 bits {} error feedback",
                        p.eight_bits->error_feedback ? "with" : "without");
  }
  if (p.reduction) text += fmt::format(", the reduction '{}'", p.reduction->name);
  return text;
}

/// On every rank, or on none: after they have agreed.
void check(std::span<const Parameter> parameters, const DataParallelPolicy& policy,
           const Device& device) {
  const auto refuse = [](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, "data parallel: " + why);
  };
  double elements = 0;
  for (const Parameter& p : parameters) {
    if (!is_float(p.type)) {
      refuse(fmt::format("{}: gradients have floating-point types", text_of(p)));
    }
    double count = 1;
    for (const std::size_t size : p.shape) count *= static_cast<double>(size);
    elements += count;
    if (!(elements <= kMostElements)) {
      refuse(fmt::format("{}: more elements than there can be", text_of(p)));
    }
  }
  if (policy.bucket_bytes == 0 || policy.first_bucket_bytes == 0) refuse("buckets of 0 bytes");
  if (policy.reduce_type && !is_float(*policy.reduce_type)) {
    refuse(fmt::format("reduce_type {}: it has to be a floating-point type",
                       name(*policy.reduce_type)));
  }
  if (policy.power_sgd.has_value() + policy.reduce_type.has_value() +
          policy.eight_bits.has_value() + policy.reduction.has_value() >
      1) {
    refuse("reduce_type, power_sgd, eight_bits and reduction: one of them only");
  }
  if (policy.power_sgd && policy.power_sgd->rank == 0) refuse("PowerSGD of rank 0");
  if (!device.is_gpu()) return;
  const auto only_host = [&](std::string_view option) {
    refuse(
        fmt::format("{} is for host memory, and these gradients are on {}", option, device.name()));
  };
  if (policy.power_sgd) only_host("power_sgd");
  if (policy.eight_bits) only_host("eight_bits");
  if (policy.check_finite) only_host("check_finite");
  if (policy.uneven_inputs) only_host("uneven_inputs");
  if (!policy.reduce_type) return;
  for (const Parameter& p : parameters) {
    if (device.converts(p.type, *policy.reduce_type)) continue;
    refuse(fmt::format("{}: reduce_type {} needs conversions for which {} has no kernels",
                       text_of(p), name(*policy.reduce_type), device.name()));
  }
}

}  // namespace

DataParallel::DataParallel(Axis& axis, std::vector<Parameter> parameters, DataParallelPolicy policy)
    : axis_(axis),
      parameters_(std::move(parameters)),
      policy_(std::move(policy)),
      memory_(std::make_shared<MemoryPool>(MemoryPool::Reuse::no, axis.device())) {
  std::vector<std::string> lines{text_of(policy_)};
  for (const Parameter& p : parameters_) lines.push_back(text_of(p));
  agree(axis_, "what is data parallel", lines);
  label_ = axis_.new_label("data parallel");
  check(parameters_, policy_, axis_.device());

  std::vector<std::uint32_t> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), 0u);
  layout_ = lay_out(parameters_, order, policy_);
  agree_on_memory(axis_, "data parallel (all gradients)", layout_.bytes, axis_.device());
  together(axis_, "data parallel", [&] {
    flat_ = shared_buffer(layout_.bytes, memory_);
    reduction_ = make_reduction(policy_, parameters_, axis_.size(), *memory_);
    reduction_->bind(layout_, flat_->data());
  });
  order_known_ = !policy_.learn_order;
  ready_.resize(parameters_.size());
  added_.resize(parameters_.size());
  end_step();
}

DataParallel::~DataParallel() {
  const auto leave = [](Pending& pending) {
    try {
      pending.wait();
    } catch (const Error&) {
      // A program that destroys an engine in the middle of a step has an error of its own.
    }
  };
  leave(backwards_pending_);
  for (Pending& pending : pending_) leave(pending);
}

void DataParallel::zero() { axis_.device().zero(flat_->data(), flat_->size()); }

void DataParallel::ready(std::size_t i) {
  if (i >= parameters_.size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("data parallel: gradient {} of {} is ready, which there is not", i,
                            parameters_.size()));
  }
  if (ready_[i] != 0) {
    throw Error(ErrorCode::invalid_usage,
                fmt::format("data parallel, step {}: the gradient of {} ({}) is ready for the "
                            "second time; finish() comes after each backward",
                            statistics_.steps, parameters_[i].name, i));
  }
  ready_[i] = 1;
  if (axis_.trace()) axis_.trace()->instant("gradients", parameters_[i].name + " is ready");
  if (policy_.check_finite && not_finite_ == 0 &&
      !all_finite(gradient(i), parameters_[i].type, parameters_[i].count())) {
    not_finite_ = i + 1;
  }
  if (!synchronises()) return;
  if (!in_step_) begin_step();
  if (!order_known_) order_.push_back(static_cast<std::uint32_t>(i));
  if (--missing_[layout_.bucket_of[i]] == 0 && overlaps()) start_ready();
}

bool DataParallel::finish() {
  if (!synchronises()) {
    for (std::size_t i = 0; i < ready_.size(); ++i) added_[i] |= std::exchange(ready_[i], 0);
    ++statistics_.unsynchronised;
    ++own_backwards_;
    return false;
  }
  if (!in_step_) begin_step();
  fill_missing();
  return average();
}

void DataParallel::fill_missing() {
  for (std::uint32_t i = 0; i < ready_.size(); ++i) {
    if (ready_[i] != 0) continue;
    const Bucket& bucket = layout_.buckets[layout_.bucket_of[i]];
    missing_[layout_.bucket_of[i]] = 0;
    if (added_[i] != 0 || parameters_[i].count() == 0) continue;
    absent_.push_back(i);
    axis_.device().zero(gradient(i), parameters_[i].count() * size_of(bucket.type));
  }
  if (policy_.unused != Unused::error || axis_.device().is_gpu()) return;
  // All ranks have to learn of it without one more collective in each step: a NaN in front of the
  // bucket becomes one in everybody's average, and then they ask each other (check_results).
  for (const std::uint32_t i : absent_) {
    const Bucket& bucket = layout_.buckets[layout_.bucket_of[i]];
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    convert(&kNan, DataType::float32, flat_->data() + bucket.offset, bucket.type, 1);
  }
}

void DataParallel::join(const std::function<void()>& after_step) {
  if (!policy_.uneven_inputs) {
    throw Error(ErrorCode::invalid_usage, "data parallel: join() needs the policy uneven_inputs");
  }
  if (in_step_ || std::ranges::count(ready_, 1) > 0 || !synchronises()) {
    throw Error(ErrorCode::invalid_usage, "data parallel: join() in the middle of a step");
  }
  struct Joined {
    explicit Joined(std::uint64_t& own) : backwards(own) {}
    ~Joined() { backwards = 1; }
    std::uint64_t& backwards;
  } joined(own_backwards_);
  while (true) {
    zero();
    std::ranges::fill(added_, std::uint8_t{0});
    own_backwards_ = 0;
    begin_step();
    wait_for_backwards();
    if (std::ranges::count(backwards_, 0) == axis_.size()) break;
    std::ranges::fill(missing_, 0u);
    average();
    if (after_step) after_step();
  }
  end_step();
}

int DataParallel::first_with_data() const {
  const auto first = std::ranges::find_if(backwards_, [](std::uint64_t n) { return n > 0; });
  return first == backwards_.end() ? 0 : static_cast<int>(first - backwards_.begin());
}

void DataParallel::end_step() {
  in_step_ = false;
  own_backwards_ = 1;
  not_finite_ = 0;
  started_ = 0;
  order_.clear();
  absent_.clear();
  std::ranges::fill(ready_, std::uint8_t{0});
  std::ranges::fill(added_, std::uint8_t{0});
  pending_.clear();
  pending_.resize(layout_.buckets.size());
  missing_.clear();
  for (const Bucket& b : layout_.buckets) {
    missing_.push_back(static_cast<std::uint32_t>(b.gradients.size()));
  }
}

void DataParallel::broadcast_parameters(std::span<void* const> pointers, int root) {
  if (pointers.size() != parameters_.size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("data parallel: {} pointers for {} parameters", pointers.size(),
                            parameters_.size()));
  }
  std::vector<std::span<std::byte>> memory;
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    const std::size_t bytes = parameters_[i].count() * size_of(parameters_[i].type);
    if (bytes > 0 && pointers[i] == nullptr) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("data parallel: the pointer to {} is null", parameters_[i].name));
    }
    memory.emplace_back(static_cast<std::byte*>(pointers[i]), bytes);
  }
  broadcast_all(axis_, memory, root);
}

DataParallel::Statistics DataParallel::statistics() const {
  Statistics result = statistics_;
  result.buckets = layout_.buckets.size();
  for (const Bucket& b : layout_.buckets) result.gradient_bytes += b.count * size_of(b.type);
  result.memory = memory_->total();
  return result;
}

}  // namespace tutti::parallel
