// The collectives of c10d that reduce, as operations of Tutti.
#include "backend.h"
#include "errors.h"
#include "tensors.h"

namespace tutti::pytorch {

using ::c10d::OpType;

namespace {

/// As Tutti compresses (docs/low-precision.md); all ranks say the same, as they have equal calls.
bool can_be_compressed(const at::Tensor& memory, const ReduceOp& op) {
  const at::ScalarType type = memory.scalar_type();
  const bool is_sum = op.kind == ReduceKind::sum || op.kind == ReduceKind::avg ||
                      op.kind == ReduceKind::pre_multiplied_sum;
  return is_sum && memory.device().is_cpu() &&
         (type == at::kHalf || type == at::kBFloat16 || type == at::kFloat);
}

}  // namespace

void Backend::add_fold(Operation& o, Collective how, const at::Tensor& to, const at::Tensor& in,
                       const Reduction& r, int root) {
  const at::Tensor from = input(o, in);
  const bool receives = how != Collective::gather || rank_ == root;
  at::Tensor all;
  if (receives)
    all = at::empty({size_, how == Collective::all_to_all ? from.numel() / size_ : from.numel()},
                    in.options());
  o.held.push_back(all);
  const auto count =
      static_cast<std::size_t>(how == Collective::all_to_all ? from.numel() / size_ : from.numel());
  o.steps.push_back(step(how, from, all, count * r.elements.each, r.elements, {}, root));
  if (!receives) return;
  o.finishing.push_back([to = to, all, fold = r.fold]() mutable {
    const bool is_unsigned = all.scalar_type() == at::kUInt16 || all.scalar_type() == at::kUInt32 ||
                             all.scalar_type() == at::kUInt64;
    if (!is_unsigned) {
      to.copy_(fold(all).view(to.sizes()));
      return;
    }
    // PyTorch has hardly any operation on these; the bits are the same.
    const auto same = all.element_size() == 2   ? at::kShort
                      : all.element_size() == 4 ? at::kInt
                                                : at::kLong;
    to.copy_(fold(all.view(same)).view(all.scalar_type()).view(to.sizes()));
  });
}

void Backend::add_all_reduce(Operation& o, const at::Tensor& tensor, const ::c10d::ReduceOp& op) {
  check_dense(tensor, "all_reduce");
  const Reduction r = reduction_of(op, tensor.scalar_type(), "all_reduce");
  o.results.push_back(tensor);
  if (r.fold != nullptr) return add_fold(o, Collective::all_gather, tensor, tensor, r, 0);
  at::Tensor memory;
  if (r.as == tensor.scalar_type()) {
    memory = output(o, tensor, true);
  } else {
    memory = tensor.to(r.as).contiguous();
    o.held.push_back(memory);
    o.finishing.push_back([to = tensor, memory]() mutable { to.copy_(memory); });
  }
  o.steps.push_back(step(Collective::all_reduce, memory, memory,
                         static_cast<std::size_t>(memory.numel()) * r.elements.each, r.elements,
                         r.op));
  o.steps.back().call.compressed = compresses_ && can_be_compressed(memory, r.op);
}

WorkPointer Backend::allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& opts) {
  TORCH_CHECK(tensors.size() == 1, "all_reduce: one tensor is needed, but there are ",
              tensors.size());
  if (tensors.front().is_sparse()) return allreduce_sparse(tensors, opts);
  Operation o(OpType::ALLREDUCE, "tutti:all_reduce", tensors.front().device());
  add_all_reduce(o, tensors.front(), opts.reduceOp);
  return issue(std::move(o), opts.timeout, opts.asyncOp);
}

void Backend::sum(const at::Tensor& tensor) {
  Operation o(OpType::ALLREDUCE, "tutti:all_reduce", tensor.device());
  add_all_reduce(o, tensor, ::c10d::ReduceOp::SUM);
  issue(std::move(o), ::c10d::kUnsetTimeout, /*async=*/false, /*open=*/false);
}

WorkPointer Backend::allreduce_coalesced(Tensors& tensors,
                                         const ::c10d::AllreduceCoalescedOptions& opts) {
  TORCH_CHECK(!tensors.empty(), "all_reduce_coalesced: the list of tensors is empty");
  Operation o(OpType::ALLREDUCE_COALESCED, "tutti:all_reduce_coalesced", tensors.front().device());
  for (const at::Tensor& t : tensors) add_all_reduce(o, t, opts.reduceOp);
  return issue(std::move(o), opts.timeout, opts.asyncOp);
}

WorkPointer Backend::reduce(Tensors& tensors, const ::c10d::ReduceOptions& opts) {
  const at::Tensor& tensor = only(tensors, "reduce");
  check_root(opts.rootRank, "reduce");
  const int root = static_cast<int>(opts.rootRank);
  const Reduction r = reduction_of(opts.reduceOp, tensor.scalar_type(), "reduce");
  Operation o(OpType::REDUCE, "tutti:reduce", tensor.device());
  o.results = tensors;
  if (r.fold != nullptr) {
    add_fold(o, Collective::gather, tensor, tensor, r, root);
    return issue(std::move(o), opts.timeout, opts.asyncOp);
  }
  at::Tensor in;
  if (r.as != tensor.scalar_type()) {
    in = tensor.to(r.as).contiguous();
    o.held.push_back(in);
    if (rank_ == root) {
      o.finishing.push_back([to = tensor, in]() mutable { to.copy_(in); });
    }
  } else {
    in = rank_ == root ? output(o, tensor, true) : input(o, tensor);
  }
  o.steps.push_back(step(Collective::reduce, in, rank_ == root ? in : at::Tensor(),
                         static_cast<std::size_t>(in.numel()) * r.elements.each, r.elements, r.op,
                         root));
  return issue(std::move(o), opts.timeout, opts.asyncOp);
}

void Backend::add_reduce_scatter(Operation& o, const at::Tensor& out, const at::Tensor& in,
                                 const ::c10d::ReduceOp& op) {
  check_dense(out, "reduce_scatter");
  check_dense(in, "reduce_scatter");
  check_same_type(out, in, "reduce_scatter");
  check_written(out, "reduce_scatter");
  TORCH_CHECK(in.numel() == out.numel() * size_, "reduce_scatter: the input has ", in.numel(),
              " elements, but the output's ", out.numel(), " for each of ", size_,
              " ranks are needed");
  const Reduction r = reduction_of(op, in.scalar_type(), "reduce_scatter");
  o.results.push_back(out);
  if (r.fold != nullptr) return add_fold(o, Collective::all_to_all, out, in, r, 0);
  at::Tensor from, to;
  if (r.as == in.scalar_type()) {
    from = input(o, in);
    to = output(o, out, false);
  } else {
    from = in.to(r.as).contiguous();
    to = at::empty(out.sizes(), from.options());
    o.held.insert(o.held.end(), {from, to});
    o.finishing.push_back([user = out, to]() mutable { user.copy_(to); });
  }
  o.steps.push_back(step(Collective::reduce_scatter, from, to,
                         static_cast<std::size_t>(to.numel()) * r.elements.each, r.elements, r.op));
  o.steps.back().call.compressed = compresses_ && can_be_compressed(from, r.op);
}

WorkPointer Backend::_reduce_scatter_base(at::Tensor& out, at::Tensor& in,
                                          const ::c10d::ReduceScatterOptions& opts) {
  Operation o(OpType::_REDUCE_SCATTER_BASE, "tutti:reduce_scatter", out.device());
  add_reduce_scatter(o, out, in, opts.reduceOp);
  return issue(std::move(o), opts.timeout, opts.asyncOp);
}

WorkPointer Backend::reduce_scatter_tensor_coalesced(Tensors& outs, Tensors& ins,
                                                     const ::c10d::ReduceScatterOptions& opts) {
  TORCH_CHECK(!outs.empty() && outs.size() == ins.size(), "reduce_scatter_coalesced: there are ",
              ins.size(), " inputs and ", outs.size(), " outputs");
  Operation o(OpType::COALESCED, "tutti:reduce_scatter_coalesced", outs.front().device());
  for (std::size_t i = 0; i < outs.size(); ++i) {
    add_reduce_scatter(o, outs[i], ins[i], opts.reduceOp);
  }
  return issue(std::move(o), opts.timeout, opts.asyncOp);
}

WorkPointer Backend::reduce_scatter(Tensors& outs, std::vector<Tensors>& ins,
                                    const ::c10d::ReduceScatterOptions& opts) {
  const at::Tensor& out = only(outs, "reduce_scatter");
  TORCH_CHECK(ins.size() == 1 && ins.front().size() == ranks(),
              "reduce_scatter: the list of inputs has one tensor for each of ", size_, " ranks");
  const Tensors& parts = ins.front();
  const Counts counts = counts_of(parts);
  Operation o(OpType::REDUCE_SCATTER, "tutti:reduce_scatter", out.device());
  const at::Tensor all = inputs(o, parts, "reduce_scatter");
  TORCH_CHECK(out.numel() == parts[static_cast<std::size_t>(rank_)].numel(),
              "reduce_scatter: the output has ", out.numel(), " elements, but input ", rank_,
              " has ", parts[static_cast<std::size_t>(rank_)].numel());
  if (all_equal(counts)) {
    add_reduce_scatter(o, out, all, opts.reduceOp);
    return issue(std::move(o), opts.timeout, opts.asyncOp);
  }
  const Reduction r = reduction_of(opts.reduceOp, out.scalar_type(), "reduce_scatter");
  TORCH_CHECK(r.fold == nullptr && r.as == out.scalar_type(),
              "reduce_scatter: inputs of different sizes cannot be reduced so");
  o.results.push_back(out);
  check_same_type(out, all, "reduce_scatter");
  check_written(out, "reduce_scatter");
  Step s = step(Collective::reduce_scatter_v, all, output(o, out, false), 0, r.elements, r.op);
  s.in_counts = counts;
  o.steps.push_back(std::move(s));
  return issue(std::move(o), opts.timeout, opts.asyncOp);
}

}  // namespace tutti::pytorch
