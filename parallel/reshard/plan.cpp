#include "parallel/reshard/plan.h"

namespace tutti::parallel::reshard {

DataType travel_type(DataType from, DataType to) { return size_of(to) < size_of(from) ? to : from; }

DataType travel_type(const Layout& from, const Layout& to, const Plan& plan, const Move& move) {
  const DataType target = to.tensors[move.tensor].type;
  const DataType source = from.tensors[plan.tensors[move.tensor]].type;
  if (move.relay && size_of(source) == size_of(target)) return target;
  return travel_type(source, target);
}

}  // namespace tutti::parallel::reshard
