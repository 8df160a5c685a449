#include "tensors.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <torch/csrc/distributed/c10d/Utils.hpp>

namespace tutti::pytorch {
namespace {

std::optional<Elements> known(at::ScalarType type) {
  switch (type) {
    case at::kChar:
      return Elements{DataType::int8};
    case at::kByte:
      return Elements{DataType::uint8};
    case at::kInt:
      return Elements{DataType::int32};
    case at::kUInt32:
      return Elements{DataType::uint32};
    case at::kLong:
      return Elements{DataType::int64};
    case at::kUInt64:
      return Elements{DataType::uint64};
    case at::kHalf:
      return Elements{DataType::float16};
    case at::kFloat:
      return Elements{DataType::float32};
    case at::kDouble:
      return Elements{DataType::float64};
    case at::kBFloat16:
      return Elements{DataType::bfloat16};
    case at::kFloat8_e4m3fn:
      return Elements{DataType::float8_e4m3};
    case at::kFloat8_e5m2:
      return Elements{DataType::float8_e5m2};
    case at::kComplexHalf:
      return Elements{DataType::float16, 2};
    case at::kComplexFloat:
      return Elements{DataType::float32, 2};
    case at::kComplexDouble:
      return Elements{DataType::float64, 2};
    default:
      return std::nullopt;
  }
}

enum class Fold : std::uint8_t { none, band, bor, bxor, product };
constexpr const char* kFoldNames[] = {"", "BAND", "BOR", "BXOR", "PRODUCT"};
constexpr unsigned kFolds = 128;  // more than there are types
static_assert(static_cast<unsigned>(at::ScalarType::NumOptions) < kFolds);

std::uint16_t label_of(at::ScalarType type, Fold fold) {
  return static_cast<std::uint16_t>(static_cast<unsigned>(type) + 1 +
                                    kFolds * static_cast<unsigned>(fold));
}

at::Tensor fold_with(const at::Tensor& all,
                     at::Tensor (*combine)(const at::Tensor&, const at::Tensor&)) {
  at::Tensor result = all[0];
  for (std::int64_t r = 1; r < all.size(0); ++r) result = combine(result, all[r]);
  return result;
}
at::Tensor fold_and(const at::Tensor& all) {
  return fold_with(all, [](const at::Tensor& a, const at::Tensor& b) { return a.bitwise_and(b); });
}
at::Tensor fold_or(const at::Tensor& all) {
  return fold_with(all, [](const at::Tensor& a, const at::Tensor& b) { return a.bitwise_or(b); });
}
at::Tensor fold_xor(const at::Tensor& all) {
  return fold_with(all, [](const at::Tensor& a, const at::Tensor& b) { return a.bitwise_xor(b); });
}
at::Tensor fold_product(const at::Tensor& all) {
  return fold_with(all, [](const at::Tensor& a, const at::Tensor& b) { return a.mul(b); });
}

/// The type in which elements of a type that Tutti does not reduce are reduced.
std::optional<at::ScalarType> stand_in(at::ScalarType type) {
  switch (type) {
    case at::kShort:
    case at::kUInt16:
      return at::kInt;
    case at::kFloat8_e4m3fnuz:
    case at::kFloat8_e5m2fnuz:
      return at::kFloat;
    default:
      return std::nullopt;
  }
}

double factor_of(const ::c10d::ReduceOp& op) {
  const auto* const extra =
      dynamic_cast<const ::c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(extra != nullptr, "PREMUL_SUM comes without its factor");
  return extra->tensor_factor.defined() ? extra->tensor_factor.item<double>()
                                        : extra->double_factor;
}

const char* name_of(::c10d::ReduceOp::RedOpType op) {
  constexpr const char* kNames[] = {"SUM",  "AVG", "PRODUCT", "MIN",       "MAX",
                                    "BAND", "BOR", "BXOR",    "PREMUL_SUM"};
  return op < std::size(kNames) ? kNames[op] : "?";
}

}  // namespace

Elements elements_of(at::ScalarType type) {
  const Elements e = known(type).value_or(Elements{DataType::uint8, c10::elementSize(type)});
  const bool is_itself = known(type) && e.each == 1;
  return {e.type, e.each, is_itself ? std::uint16_t{0} : label_of(type, Fold::none)};
}

std::string with_labels_named(std::string text) {
  constexpr std::string_view kLabel = "label ";
  std::size_t at = 0;
  while ((at = text.find(kLabel, at)) != std::string::npos) {
    const std::size_t begin = at + kLabel.size();
    const std::size_t end = std::min(text.find_first_not_of("0123456789", begin), text.size());
    const unsigned label =
        begin == end ? 0 : static_cast<unsigned>(std::stoul(text.substr(begin, end - begin)));
    const unsigned type = label % kFolds, fold = label / kFolds;
    at = end;
    if (type == 0 || type > static_cast<unsigned>(at::ScalarType::NumOptions) ||
        fold >= std::size(kFoldNames))
      continue;
    std::string name = c10::toString(static_cast<at::ScalarType>(type - 1));
    if (fold > 0) name += c10::str(", ", kFoldNames[fold]);
    text.replace(begin - kLabel.size(), end - begin + kLabel.size(), name);
    at = begin - kLabel.size() + name.size();
  }
  return text;
}

void check_dense(const at::Tensor& tensor, const char* what) {
  TORCH_CHECK(tensor.defined(), what, ": a tensor is missing");
  TORCH_CHECK(tensor.layout() == at::kStrided, what, ": only dense tensors, not ", tensor.layout());
}

const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* what) {
  TORCH_CHECK(tensors.size() == 1, what, ": one tensor is needed, but there are ", tensors.size());
  check_dense(tensors.front(), what);
  return tensors.front();
}

void check_same_type(const at::Tensor& a, const at::Tensor& b, const char* what) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), what, ": tensors are of one type, but these are ",
              a.scalar_type(), " and ", b.scalar_type());
  TORCH_CHECK(a.device() == b.device(), what, ": tensors are on one device, but these are on ",
              a.device(), " and ", b.device());
}

void check_written(const at::Tensor& output, const char* what) {
  if (!at::GradMode::is_enabled() || !output.requires_grad()) return;
  const bool is_leaf = output.is_view() ? output._base().is_leaf() : output.is_leaf();
  TORCH_CHECK(!is_leaf, what,
              ": a leaf Variable that requires grad is being used in an in-place operation, as an "
              "output; make the call within torch.no_grad(), or pass its detach()");
}

at::Tensor input(Operation& o, const at::Tensor& tensor) {
  at::Tensor t = tensor.contiguous();
  if (t.is_conj() || t.is_neg()) t = t.resolve_conj().resolve_neg();
  o.held.push_back(t);
  return t;
}

at::Tensor output(Operation& o, const at::Tensor& tensor, bool reads) {
  if (tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg()) {
    o.held.push_back(tensor);
    return tensor;
  }
  at::Tensor copy = at::empty(tensor.sizes(), tensor.options());
  if (reads) copy.copy_(tensor);
  o.held.push_back(copy);
  o.finishing.push_back([to = tensor, copy]() mutable { to.copy_(copy); });
  return copy;
}

at::Tensor inputs(Operation& o, const std::vector<at::Tensor>& tensors, const char* what) {
  TORCH_CHECK(!tensors.empty(), what, ": the list of tensors is empty");
  std::vector<at::Tensor> flat;
  for (const at::Tensor& t : tensors) {
    check_dense(t, what);
    check_same_type(t, tensors.front(), what);
    flat.push_back(t.reshape({-1}));
  }
  std::int64_t total = 0;
  for (const at::Tensor& t : flat) total += t.numel();
  at::Tensor all = at::empty({total}, tensors.front().options());
  std::int64_t begin = 0;
  for (const at::Tensor& t : flat) {
    if (t.numel() > 0) all.narrow(0, begin, t.numel()).copy_(t);
    begin += t.numel();
  }
  o.held.push_back(all);
  return all;
}

at::Tensor outputs(Operation& o, const std::vector<at::Tensor>& tensors, const char* what) {
  TORCH_CHECK(!tensors.empty(), what, ": the list of tensors is empty");
  std::int64_t total = 0;
  for (const at::Tensor& t : tensors) {
    check_dense(t, what);
    check_same_type(t, tensors.front(), what);
    check_written(t, what);
    total += t.numel();
  }
  at::Tensor all = at::empty({total}, tensors.front().options());
  o.held.push_back(all);
  o.finishing.push_back([users = std::vector<at::Tensor>(tensors), all] {
    std::int64_t begin = 0;
    for (const at::Tensor& t : users) {
      if (t.numel() > 0) t.copy_(all.narrow(0, begin, t.numel()).view(t.sizes()));
      begin += t.numel();
    }
  });
  return all;
}

Step step(Collective collective, const at::Tensor& in, const at::Tensor& out, std::size_t count,
          const Elements& elements, ReduceOp op, int root) {
  Step s;
  s.call.collective = collective;
  s.call.in = in.defined() ? in.const_data_ptr() : nullptr;
  s.call.out = out.defined() ? out.data_ptr() : nullptr;
  s.call.count = count;
  s.call.type = elements.type;
  s.call.label = elements.label;
  s.call.op = op;
  s.call.root = root;
  return s;
}

Counts counts_of(const std::vector<at::Tensor>& tensors) {
  Counts counts;
  for (const at::Tensor& t : tensors) counts.push_back(count_of(t));
  return counts;
}

bool all_equal(const Counts& counts) {
  return std::ranges::all_of(counts, [&](std::size_t c) { return c == counts.front(); });
}

Reduction reduction_of(const ::c10d::ReduceOp& op, at::ScalarType type, const char* what) {
  using Op = ::c10d::ReduceOp;
  const Op::RedOpType kind = op.op_;
  Reduction r;
  r.as = type;
  const auto refuse = [&] {
    TORCH_CHECK(false, what, ": ", name_of(kind), " is not defined for tensors of ", type);
  };
  const bool bits = kind == Op::BAND || kind == Op::BOR || kind == Op::BXOR;
  if (bits && !c10::isIntegralType(type, /*includeBool=*/true)) refuse();
  const auto fold = [&](auto function, Fold how) {
    r.fold = function;
    r.elements = elements_of(type);
    r.elements.label = label_of(type, how);
    return r;
  };
  if (kind == Op::BXOR) return fold(fold_xor, Fold::bxor);
  if (bits && type != at::kBool) {
    return kind == Op::BAND ? fold(fold_and, Fold::band) : fold(fold_or, Fold::bor);
  }
  if (type == at::kBool) {  // 0 and 1: "or" is the larger one
    if (kind == Op::AVG || kind == Op::PREMUL_SUM) refuse();
    r.op =
        kind == Op::SUM || kind == Op::MAX || kind == Op::BOR ? ReduceKind::max : ReduceKind::min;
    r.elements = elements_of(type);
    return r;
  }
  if (c10::isComplexType(type)) {
    if (kind == Op::MIN || kind == Op::MAX) refuse();
    if (kind == Op::PRODUCT) return fold(fold_product, Fold::product);
  }
  if (!known(type)) {
    const auto other = stand_in(type);
    if (!other) refuse();
    r.as = *other;
  }
  r.elements = elements_of(r.as);
  if (r.as != type) r.elements.label = label_of(type, Fold::none);
  switch (kind) {
    case Op::SUM:
      r.op = ReduceKind::sum;
      break;
    case Op::AVG:
      r.op = ReduceKind::avg;
      break;
    case Op::PRODUCT:
      r.op = ReduceKind::prod;
      break;
    case Op::MIN:
      r.op = ReduceKind::min;
      break;
    case Op::MAX:
      r.op = ReduceKind::max;
      break;
    case Op::PREMUL_SUM:
      TORCH_CHECK(!c10::isIntegralType(type, false) || factor_of(op) == std::trunc(factor_of(op)),
                  what, ": PREMUL_SUM multiplies tensors of ", type, " by whole numbers, not by ",
                  factor_of(op));
      r.op = ReduceOp::pre_multiplied_sum(r.elements.type, factor_of(op));
      break;
    default:
      refuse();
  }
  return r;
}

}  // namespace tutti::pytorch
