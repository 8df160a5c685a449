// all_reduce of sparse tensors: their parts are gathered, and summed here. It takes several calls,
// and the sizes of the later ones depend on the earlier ones. So it runs to its end before it
// returns, even where the caller asks for an asynchronous call.
#include "backend.h"
#include "errors.h"
#include "tensors.h"

namespace tutti::pytorch {

void Backend::run_through(Operation&& o, Milliseconds timeout) {
  {
    const auto held = lock();
    check_usable();
    refuse_estimate(o.name, "dense collectives");
  }
  run(std::move(o), effective(timeout));
}

at::Tensor Backend::gathered(const at::Tensor& mine, const Counts& counts, Milliseconds timeout) {
  std::size_t total = 0;
  for (const std::size_t c : counts) total += c;
  at::Tensor all = at::empty({static_cast<std::int64_t>(total)}, mine.options());
  Operation o(::c10d::OpType::ALLGATHER, "tutti:all_reduce_sparse", mine.device());
  const Elements e = elements_of(mine.scalar_type());
  Step s;
  s.call.collective = Collective::all_gather_v;
  const at::Tensor from = input(o, mine);
  s.call.in = from.const_data_ptr();
  s.call.out = all.data_ptr();
  s.call.type = e.type;
  s.call.label = e.label;
  for (const std::size_t c : counts) s.out_counts.push_back(c * e.each);
  o.held.push_back(all);
  o.steps.push_back(std::move(s));
  run_through(std::move(o), timeout);
  return all;
}

WorkPointer Backend::allreduce_sparse(Tensors& tensors, const ::c10d::AllreduceOptions& opts) {
  TORCH_CHECK(
      tensors.size() == 1 && tensors.front().layout() == at::kSparse && tensors.front().is_cpu(),
      "all_reduce: one tensor is needed, sparse (COO) and on the CPU");
  TORCH_CHECK(opts.reduceOp.op_ == ::c10d::ReduceOp::SUM,
              "all_reduce: sparse tensors can be summed alone");
  at::Tensor& tensor = tensors.front();
  ++sequence_;
  const auto issued = [&]() -> WorkPointer {
    // In the mode in which the tensor was made: its parts go by that.
    const c10::InferenceMode as_it_is(tensor.is_inference());
    const at::NoGradGuard no_grad;
    const at::Tensor mine = tensor.coalesce();
    const std::int64_t dims = mine.sparse_dim();
    const at::Tensor nonzero =
        gathered(at::full({1}, mine._nnz(), at::kLong), Counts(ranks(), 1), opts.timeout);
    Counts indices, values;
    std::int64_t total = 0;
    const std::int64_t each = mine._nnz() == 0 ? 0 : mine._values().numel() / mine._nnz();
    std::int64_t row = 1;
    for (std::int64_t d = dims; d < mine.dim(); ++d) row *= mine.size(d);
    TORCH_INTERNAL_ASSERT(mine._nnz() == 0 || each == row);
    for (int r = 0; r < size_; ++r) {
      const std::int64_t n = nonzero[r].item<std::int64_t>();
      total += n;
      indices.push_back(static_cast<std::size_t>(n * dims));
      values.push_back(static_cast<std::size_t>(n * row));
    }
    const at::Tensor where =
        gathered(mine._indices().t().contiguous().view({-1}), indices, opts.timeout);
    const at::Tensor what = gathered(mine._values().contiguous().view({-1}), values, opts.timeout);
    std::vector<std::int64_t> shape = {total};
    for (std::int64_t d = dims; d < mine.dim(); ++d) shape.push_back(mine.size(d));
    const at::Tensor sum =
        at::sparse_coo_tensor(where.view({total, dims}).t(), what.view(shape), mine.sizes())
            .coalesce();
    tensor.copy_(sum);
    Operation o(::c10d::OpType::_ALLREDUCE_SPARSE, "tutti:all_reduce_sparse", tensor.device());
    o.results = tensors;
    auto work = make_work(std::move(o), effective(opts.timeout));
    work->end(std::nullopt);
    return work;
  };
  return translated(issued, [this](const Error& error) { hears(error); });
}

}  // namespace tutti::pytorch
