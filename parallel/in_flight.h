// Started collectives of an engine's call: the call waits for all of them before it returns, also
// after an exception, since their memory belongs to the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/axis.h"

namespace tutti::parallel {

class InFlight {
 public:
  /// `what` is put before errors, and names operations in the trace; it outlives this object, and
  /// may change meanwhile. `label` is that of the calls (Axis::new_label()). `overlaps`: the caller
  /// has other work meanwhile. Otherwise add() carries calls out at once, which takes less time.
  InFlight(const std::string& what, std::uint16_t label, bool overlaps = true)
      : what_(what), label_(label), overlaps_(overlaps) {}
  ~InFlight();
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  void add(Axis& axis, Call call);
  /// Throws the error of an operation, and adds `what` to it.
  void wait(std::size_t i);
  void wait();

 private:
  template <class Body>
  void during(const Body& body) const;

  const std::string& what_;
  const std::uint16_t label_;
  const bool overlaps_;
  std::vector<Pending> pending_;
};

}  // namespace tutti::parallel
