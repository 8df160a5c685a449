#include "bindings/nccl/operators.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>

#include "bindings/nccl/export.h"
#include "bindings/nccl/result.h"

namespace tutti::nccl {
namespace {

[[noreturn]] void refuse_operator(int op) {
  refuse_argument(fmt::format(
      "{} is no reduction operator of this communicator: neither one of the first {}, nor one that "
      "ncclRedOpCreatePreMulSum made for it and ncclRedOpDestroy has left",
      op, static_cast<int>(ncclNumOps)));
}

/// A number that no operator of this process has had, of any communicator (until they wrap round).
int new_operator_number() {
  static std::atomic<unsigned> count{0};
  constexpr unsigned kNumbers = static_cast<unsigned>(ncclMaxRedOp) - ncclNumOps;
  return static_cast<int>(ncclNumOps) +
         static_cast<int>(count.fetch_add(1, std::memory_order_relaxed) % kNumbers);
}

}  // namespace

DataType data_type(ncclDataType_t type) {
  const int number = static_cast<int>(type);
  if (number < 0 || number >= kDataTypes) {
    refuse_argument(fmt::format("{} is no data type (ncclDataType_t)", number));
  }
  return static_cast<DataType>(number);
}

const void* set_operator(ncclComm& comm, Call& call, ncclRedOp_t op) {
  const int number = static_cast<int>(op);
  if (number >= 0 && number < ncclNumOps) {
    call.op.kind = static_cast<ReduceKind>(number);
    return nullptr;
  }
  const std::lock_guard lock(comm.mutex);
  const auto found = comm.operators.find(number);
  if (found == comm.operators.end()) refuse_operator(number);
  const PreMulSum& made = found->second;
  if (made.type != call.type) {
    refuse_argument(fmt::format("the operator was made for {}, but the data is {}", name(made.type),
                                name(call.type)));
  }
  call.op = ReduceOp::pre_multiplied_sum_of_bits(made.type, made.bits);
  return made.at_execution;
}

}  // namespace tutti::nccl

using namespace tutti::nccl;

NCCL_API(ncclResult_t, ncclRedOpCreatePreMulSum,
         (ncclRedOp_t * op, void* scalar, ncclDataType_t datatype, ncclScalarResidence_t residence,
          ncclComm_t comm)) {
  return guarded("ncclRedOpCreatePreMulSum", [&] {
    ncclComm& owner = made(comm);
    require(op, "op");
    require(scalar, "scalar");
    PreMulSum made;
    made.type = data_type(datatype);
    if (residence == ncclScalarHostImmediate) {
      std::memcpy(&made.bits, scalar, size_of(made.type));
    } else if (residence == ncclScalarDevice) {
      made.at_execution = scalar;
    } else {
      refuse_argument(fmt::format("{} is no residence of a scalar (ncclScalarResidence_t)",
                                  static_cast<int>(residence)));
    }
    const int number = new_operator_number();
    const std::lock_guard lock(owner.mutex);
    owner.operators[number] = made;
    *op = static_cast<ncclRedOp_t>(number);
    return ncclSuccess;
  });
}

NCCL_API(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm)) {
  return guarded("ncclRedOpDestroy", [&] {
    ncclComm& owner = checked(comm);
    if (op >= 0 && op < ncclNumOps) {
      refuse_argument(
          fmt::format("operator {} is built in and cannot be destroyed", static_cast<int>(op)));
    }
    const std::lock_guard lock(owner.mutex);
    if (owner.operators.erase(static_cast<int>(op)) == 0) refuse_operator(static_cast<int>(op));
    return ncclSuccess;
  });
}
