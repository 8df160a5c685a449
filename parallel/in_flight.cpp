#include "parallel/in_flight.h"

#include <fmt/format.h>

#include "core/error.h"

namespace tutti::parallel {

InFlight::~InFlight() {
  for (Pending& p : pending_) {
    try {
      p.wait();
    } catch (...) {  // a program that leaves early has an error of its own
    }
  }
}

template <class Body>
void InFlight::during(const Body& body) const {
  try {
    body();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", what_, error.what()), error.rank());
  }
}

void InFlight::add(Axis& axis, Call call) {
  call.label = label_;
  during([&] {
    if (overlaps_) {
      pending_.push_back(axis.start(call, what_));
    } else {
      axis.run(call, what_);
    }
  });
}

void InFlight::wait(std::size_t i) {
  during([&] { pending_[i].wait(); });
}

void InFlight::wait() {
  for (std::size_t i = 0; i < pending_.size(); ++i) wait(i);
}

}  // namespace tutti::parallel
