// A rank's wires over RDMA: each over one of this host's ports, whose devices are opened when the
// first wire needs them.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "transport/verbs/windows.h"
#include "transport/wire_choice.h"

namespace tutti {

class VerbsWires final : public WireMaker {
 public:
  explicit VerbsWires(std::vector<VerbsPort> ports) : ports_(std::move(ports)) {}
  std::unique_ptr<Wire> make(Wire::Owner& owner, int peer, int port) override;

 private:
  const std::vector<VerbsPort> ports_;
  std::map<int, std::shared_ptr<VerbsWindows>> windows_;  // by port
};

}  // namespace tutti
