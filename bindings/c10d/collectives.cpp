// The collectives of c10d as operations of Tutti.
#include <algorithm>

#include "backend.h"
#include "errors.h"
#include "tensors.h"

namespace tutti::pytorch {
namespace {

using ::c10d::OpType;

Step step(Collective collective, const at::Tensor& in, const at::Tensor& out, std::size_t count,
          const Elements& elements, ReduceOp op = {}, int root = 0) {
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

Counts counts_of(const Tensors& tensors) {
  Counts counts;
  for (const at::Tensor& t : tensors) counts.push_back(count_of(t));
  return counts;
}

std::int64_t rows_of(const at::Tensor& t) { return t.dim() == 0 ? 1 : t.size(0); }

bool all_equal(const Counts& counts) {
  return std::ranges::all_of(counts, [&](std::size_t c) { return c == counts.front(); });
}

}  // namespace

void Backend::check_root(std::int64_t root, const char* what) const {
  TORCH_CHECK(root >= 0 && root < size_, what, ": invalid root rank ", root, " of ", size_,
              " ranks");
}

// --- Reductions

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
}

WorkPointer Backend::allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& opts) {
  TORCH_CHECK(tensors.size() == 1, "all_reduce: one tensor is needed, but there are ",
              tensors.size());
  if (tensors.front().is_sparse()) return allreduce_sparse(tensors, opts);
  Operation o(OpType::ALLREDUCE, "tutti:all_reduce", tensors.front().device());
  add_all_reduce(o, tensors.front(), opts.reduceOp);
  return issue(std::move(o), opts.timeout, opts.asyncOp);
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
  Step s = step(Collective::reduce_scatter_v, all, output(o, out, false), 0, r.elements, r.op);
  s.in_counts = counts;
  o.steps.push_back(std::move(s));
  return issue(std::move(o), opts.timeout, opts.asyncOp);
}

// --- What only moves

WorkPointer Backend::broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& opts) {
  const at::Tensor& tensor = only(tensors, "broadcast");
  check_root(opts.rootRank, "broadcast");
  const int root = static_cast<int>(opts.rootRank);
  Operation o(OpType::BROADCAST, "tutti:broadcast", tensor.device());
  o.results = tensors;
  const at::Tensor memory = rank_ == root ? input(o, tensor) : output(o, tensor, false);
  o.steps.push_back(step(Collective::broadcast, memory, memory, count_of(memory),
                         elements_of(memory.scalar_type()), {}, root));
  return issue(std::move(o), opts.timeout, opts.asyncOp);
}

void Backend::add_all_gather(Operation& o, const at::Tensor& out, const at::Tensor& in) {
  check_dense(out, "all_gather");
  check_dense(in, "all_gather");
  check_same_type(out, in, "all_gather");
  TORCH_CHECK(out.numel() == in.numel() * size_, "all_gather: the output has ", out.numel(),
              " elements, but the input's ", in.numel(), " of each of ", size_,
              " ranks are needed");
  o.results.push_back(out);
  const at::Tensor from = input(o, in);
  o.steps.push_back(step(Collective::all_gather, from, output(o, out, false), count_of(from),
                         elements_of(from.scalar_type())));
}

void Backend::add_all_gather_list(Operation& o, const Tensors& outs, const at::Tensor& in) {
  check_dense(in, "all_gather");
  TORCH_CHECK(outs.size() == ranks(), "all_gather: the list of outputs has ", outs.size(),
              " tensors, but there are ", size_, " ranks");
  const Counts counts = counts_of(outs);
  TORCH_CHECK(outs[static_cast<std::size_t>(rank_)].numel() == in.numel(),
              "all_gather: the input has ", in.numel(), " elements, but output ", rank_, " has ",
              outs[static_cast<std::size_t>(rank_)].numel());
  check_same_type(outs.front(), in, "all_gather");
  const at::Tensor all = outputs(o, outs, "all_gather");
  const at::Tensor from = input(o, in);
  o.results.insert(o.results.end(), outs.begin(), outs.end());
  const Elements elements = elements_of(in.scalar_type());
  if (all_equal(counts)) {
    o.steps.push_back(step(Collective::all_gather, from, all, count_of(from), elements));
    return;
  }
  Step s = step(Collective::all_gather_v, from, all, 0, elements);
  s.out_counts = counts;
  o.steps.push_back(std::move(s));
}

WorkPointer Backend::allgather(std::vector<Tensors>& outs, Tensors& ins,
                               const ::c10d::AllgatherOptions& opts) {
  const at::Tensor& in = only(ins, "all_gather");
  TORCH_CHECK(outs.size() == 1, "all_gather: one list of outputs is needed");
  Operation o(OpType::ALLGATHER, "tutti:all_gather", in.device());
  add_all_gather_list(o, outs.front(), in);
  return issue(std::move(o), opts.timeout, opts.asyncOp);
}

WorkPointer Backend::_allgather_base(at::Tensor& out, at::Tensor& in,
                                     const ::c10d::AllgatherOptions& opts) {
  Operation o(OpType::_ALLGATHER_BASE, "tutti:all_gather", out.device());
  add_all_gather(o, out, in);
  return issue(std::move(o), opts.timeout, opts.asyncOp);
}

// outs[r][i]: of rank r, its i-th input.
WorkPointer Backend::allgather_coalesced(std::vector<Tensors>& outs, Tensors& ins,
                                         const ::c10d::AllgatherOptions& opts) {
  TORCH_CHECK(!ins.empty() && outs.size() == ranks(),
              "all_gather_coalesced: a list of outputs is needed for each of ", size_, " ranks");
  Operation o(OpType::ALLGATHER_COALESCED, "tutti:all_gather_coalesced", ins.front().device());
  for (std::size_t i = 0; i < ins.size(); ++i) {
    Tensors each;
    for (const Tensors& of_rank : outs) {
      TORCH_CHECK(of_rank.size() == ins.size(), "all_gather_coalesced: a list of outputs has ",
                  of_rank.size(), " tensors, but there are ", ins.size(), " inputs");
      each.push_back(of_rank[i]);
    }
    add_all_gather_list(o, each, ins[i]);
  }
  return issue(std::move(o), opts.timeout, opts.asyncOp);
}

WorkPointer Backend::allgather_into_tensor_coalesced(Tensors& outs, Tensors& ins,
                                                     const ::c10d::AllgatherOptions& opts) {
  TORCH_CHECK(!outs.empty() && outs.size() == ins.size(), "all_gather_coalesced: there are ",
              ins.size(), " inputs and ", outs.size(), " outputs");
  Operation o(OpType::COALESCED, "tutti:all_gather_coalesced", outs.front().device());
  for (std::size_t i = 0; i < outs.size(); ++i) add_all_gather(o, outs[i], ins[i]);
  return issue(std::move(o), opts.timeout, opts.asyncOp);
}

WorkPointer Backend::gather(std::vector<Tensors>& outs, Tensors& ins,
                            const ::c10d::GatherOptions& opts) {
  const at::Tensor& in = only(ins, "gather");
  check_root(opts.rootRank, "gather");
  const int root = static_cast<int>(opts.rootRank);
  Operation o(OpType::GATHER, "tutti:gather", in.device());
  at::Tensor all;
  if (rank_ == root) {
    TORCH_CHECK(outs.size() == 1 && outs.front().size() == ranks(),
                "gather: the root's list of outputs has one tensor for each of ", size_, " ranks");
    for (const at::Tensor& t : outs.front()) {
      check_same_type(t, in, "gather");
      TORCH_CHECK(t.numel() == in.numel(), "gather: an output has ", t.numel(),
                  " elements, but the input has ", in.numel());
    }
    all = outputs(o, outs.front(), "gather");
    o.results = outs.front();
  } else {
    TORCH_CHECK(outs.empty() || outs.front().empty(), "gather: only the root has outputs");
  }
  const at::Tensor from = input(o, in);
  o.steps.push_back(step(Collective::gather, from, all, count_of(from),
                         elements_of(from.scalar_type()), {}, root));
  return issue(std::move(o), opts.timeout, opts.asyncOp);
}

WorkPointer Backend::gather_into_tensor(at::Tensor& out, at::Tensor& in,
                                        const ::c10d::GatherOptions& opts) {
  check_dense(in, "gather");
  check_root(opts.rootRank, "gather");
  const int root = static_cast<int>(opts.rootRank);
  Operation o(OpType::GATHER, "tutti:gather", in.device());
  at::Tensor all;
  if (rank_ == root) {
    check_dense(out, "gather");
    check_same_type(out, in, "gather");
    TORCH_CHECK(out.numel() == in.numel() * size_, "gather: the output has ", out.numel(),
                " elements, but the input's ", in.numel(), " of each of ", size_,
                " ranks are needed");
    all = output(o, out, false);
    o.results.push_back(out);
  }
  const at::Tensor from = input(o, in);
  o.steps.push_back(step(Collective::gather, from, all, count_of(from),
                         elements_of(from.scalar_type()), {}, root));
  return issue(std::move(o), opts.timeout, opts.asyncOp);
}

WorkPointer Backend::scatter(Tensors& outs, std::vector<Tensors>& ins,
                             const ::c10d::ScatterOptions& opts) {
  const at::Tensor& out = only(outs, "scatter");
  check_root(opts.rootRank, "scatter");
  const int root = static_cast<int>(opts.rootRank);
  Operation o(OpType::SCATTER, "tutti:scatter", out.device());
  o.results = outs;
  at::Tensor all;
  if (rank_ == root) {
    TORCH_CHECK(ins.size() == 1 && ins.front().size() == ranks(),
                "scatter: the root's list of inputs has one tensor for each of ", size_, " ranks");
    for (const at::Tensor& t : ins.front()) {
      check_same_type(t, out, "scatter");
      TORCH_CHECK(t.numel() == out.numel(), "scatter: an input has ", t.numel(),
                  " elements, but the output has ", out.numel());
    }
    all = inputs(o, ins.front(), "scatter");
  } else {
    TORCH_CHECK(ins.empty() || ins.front().empty(), "scatter: only the root has inputs");
  }
  const at::Tensor to = output(o, out, false);
  o.steps.push_back(
      step(Collective::scatter, all, to, count_of(to), elements_of(to.scalar_type()), {}, root));
  return issue(std::move(o), opts.timeout, opts.asyncOp);
}

WorkPointer Backend::alltoall_base(at::Tensor& out, at::Tensor& in,
                                   std::vector<std::int64_t>& out_splits,
                                   std::vector<std::int64_t>& in_splits,
                                   const ::c10d::AllToAllOptions& opts) {
  check_dense(out, "all_to_all");
  check_dense(in, "all_to_all");
  check_same_type(out, in, "all_to_all");
  Operation o(OpType::ALLTOALL_BASE, "tutti:all_to_all", out.device());
  o.results.push_back(out);
  const at::Tensor from = input(o, in);
  const at::Tensor to = output(o, out, false);
  const Elements e = elements_of(in.scalar_type());
  if (out_splits.empty() && in_splits.empty()) {
    TORCH_CHECK(in.numel() == out.numel() && rows_of(in) % size_ == 0 && rows_of(out) % size_ == 0,
                "all_to_all: the input's shape ", in.sizes(), " and the output's ", out.sizes(),
                " are not as many rows for each of ", size_, " ranks");
    o.steps.push_back(step(Collective::all_to_all, from, to,
                           static_cast<std::size_t>(in.numel() / size_) * e.each, e));
    return issue(std::move(o), opts.timeout, opts.asyncOp);
  }
  const auto counts = [&](const std::vector<std::int64_t>& splits, const at::Tensor& t) {
    const std::int64_t rows = rows_of(t);
    std::int64_t sum = 0;
    for (const std::int64_t s : splits) sum += s;
    TORCH_CHECK(splits.empty() ? rows % size_ == 0 : splits.size() == ranks() && sum == rows,
                "all_to_all: the split sizes do not fit the ", rows, " rows of a tensor and ",
                size_, " ranks");
    const std::int64_t row = rows == 0 ? 0 : t.numel() / rows;
    Counts result;
    for (int r = 0; r < size_; ++r) {
      const std::int64_t n = splits.empty() ? rows / size_ : splits[static_cast<std::size_t>(r)];
      TORCH_CHECK(n >= 0, "all_to_all: a split size is negative");
      result.push_back(static_cast<std::size_t>(n * row) * e.each);
    }
    return result;
  };
  Step s = step(Collective::all_to_all_v, from, to, 0, e);
  s.in_counts = counts(in_splits, in);
  s.out_counts = counts(out_splits, out);
  o.steps.push_back(std::move(s));
  return issue(std::move(o), opts.timeout, opts.asyncOp);
}

WorkPointer Backend::alltoall(Tensors& outs, Tensors& ins, const ::c10d::AllToAllOptions& opts) {
  TORCH_CHECK(outs.size() == ranks() && ins.size() == ranks(),
              "all_to_all: both lists have one tensor for each of ", size_, " ranks");
  check_same_type(outs.front(), ins.front(), "all_to_all");
  Operation o(OpType::ALLTOALL, "tutti:all_to_all", outs.front().device());
  const at::Tensor from = inputs(o, ins, "all_to_all");
  const at::Tensor to = outputs(o, outs, "all_to_all");
  o.results = outs;
  Step s = step(Collective::all_to_all_v, from, to, 0, elements_of(from.scalar_type()));
  s.in_counts = counts_of(ins);
  s.out_counts = counts_of(outs);
  o.steps.push_back(std::move(s));
  return issue(std::move(o), opts.timeout, opts.asyncOp);
}

WorkPointer Backend::barrier(const ::c10d::BarrierOptions& opts) {
  Operation o(OpType::BARRIER, "tutti:barrier", at::kCPU);
  Step s;
  s.call.collective = Collective::barrier;
  o.steps.push_back(s);
  return issue(std::move(o), opts.timeout, opts.asyncOp);
}

}  // namespace tutti::pytorch
