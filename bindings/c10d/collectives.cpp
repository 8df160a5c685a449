// The collectives of c10d that only move data, and the barrier, as operations of Tutti.
#include "backend.h"
#include "errors.h"
#include "tensors.h"

namespace tutti::pytorch {

using ::c10d::OpType;

namespace {

std::int64_t rows_of(const at::Tensor& t) { return t.dim() == 0 ? 1 : t.size(0); }

void check_divides(const at::Tensor& t, int ranks) {
  TORCH_CHECK(rows_of(t) % ranks == 0, "all_to_all: a tensor of ", rows_of(t),
              " rows does not divide equally across group size ", ranks,
              "; without split sizes it has as many rows for each of the ranks");
}

}  // namespace

void Backend::check_root(std::int64_t root, const char* what) const {
  TORCH_CHECK(root >= 0 && root < size_, what, ": invalid root rank ", root, " of ", size_,
              " ranks");
}

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
  check_written(out, "all_gather");
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
  for (const at::Tensor& t : {in, out}) {
    TORCH_CHECK_VALUE(t.is_contiguous(t.suggest_memory_format()),
                      "all_to_all: Tensors must be contiguous");
  }
  if (in_splits.empty()) check_divides(in, size_);
  if (out_splits.empty()) check_divides(out, size_);
  Operation o(OpType::ALLTOALL_BASE, "tutti:all_to_all", out.device());
  o.results.push_back(out);
  const at::Tensor from = input(o, in);
  const at::Tensor to = output(o, out, false);
  const Elements e = elements_of(in.scalar_type());
  if (out_splits.empty() && in_splits.empty()) {
    TORCH_CHECK(in.numel() == out.numel(), "all_to_all: the input has ", in.numel(),
                " elements, but the output has ", out.numel());
    o.steps.push_back(step(Collective::all_to_all, from, to,
                           static_cast<std::size_t>(in.numel() / size_) * e.each, e));
    return issue(std::move(o), opts.timeout, opts.asyncOp);
  }
  const auto counts = [&](const std::vector<std::int64_t>& splits, const at::Tensor& t) {
    const std::int64_t rows = rows_of(t);
    std::int64_t sum = 0;
    for (const std::int64_t s : splits) sum += s;
    TORCH_CHECK(splits.empty() || (splits.size() == ranks() && sum == rows),
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
