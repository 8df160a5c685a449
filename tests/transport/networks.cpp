#include "tests/transport/networks.h"

#include <cstdlib>
#include <string>
#include <utility>

#include "tests/transport/card_network.h"
#include "tests/transport/delaying_endpoint.h"
#include "transport/network/wire_choice.h"
#include "transport/tcp/tcp_endpoint.h"
#ifdef TUTTI_TEST_VERBS
#include "tests/transport/verbs_ends.h"
#endif

namespace tutti::test {
namespace {

/// A maker for each side, as each is a rank of its own.
class OfMakers final : public TestNetwork {
 public:
  OfMakers(std::shared_ptr<EndpointMaker> zero, std::shared_ptr<EndpointMaker> one)
      : makers_{std::move(zero), std::move(one)} {}
  std::unique_ptr<Endpoint> make(int side, Endpoint::Sink& sink) override {
    return makers_[side]->make(sink, 1 - side, -1);
  }
  std::mutex* lock(int side) override { return makers_[side]->lock(); }

 private:
  std::shared_ptr<EndpointMaker> makers_[2];
};

std::unique_ptr<TestNetwork> of_kind(WireKind kind) {
  return std::make_unique<OfMakers>(make_endpoints(kind), make_endpoints(kind));
}

/// TCP over several ways.
class Striped final : public TestNetwork {
 public:
  explicit Striped(std::unique_ptr<TestNetwork> network) : network_(std::move(network)) {}
  std::unique_ptr<Endpoint> make(int side, Endpoint::Sink& sink) override {
    return network_->make(side, sink);
  }
  int stripes() const override { return 3; }

 private:
  const std::unique_ptr<TestNetwork> network_;
};

/// Another network, which delays.
class Delayed final : public TestNetwork {
 public:
  explicit Delayed(std::unique_ptr<TestNetwork> network) : network_(std::move(network)) {}
  std::unique_ptr<Endpoint> make(int side, Endpoint::Sink& sink) override {
    return std::make_unique<DelayingEndpoint>(sink, network_->make(side, sink), ++seed_);
  }
  std::mutex* lock(int side) override { return network_->lock(side); }
  int stripes() const override { return network_->stripes(); }

 private:
  const std::unique_ptr<TestNetwork> network_;
  unsigned seed_ = 0;
};

std::unique_ptr<TestNetwork> delayed(std::unique_ptr<TestNetwork> network) {
  return network ? std::make_unique<Delayed>(std::move(network)) : nullptr;
}

std::unique_ptr<TestNetwork> over_ucx(const char* transports, std::string& why_not) {
  why_not = why_no_ucx();
  if (!why_not.empty()) return nullptr;
  setenv("TUTTI_UCX_TLS", transports, 1);
  return of_kind(WireKind::ucx);
}

std::unique_ptr<TestNetwork> over_verbs(std::string& why_not) {
#ifdef TUTTI_TEST_VERBS
  if (const auto port = usable_port()) return std::make_unique<VerbsTestNetwork>(*port);
#endif
  why_not = "no RDMA device that could be used (`make test-rdma` has some)";
  return nullptr;
}

/// A plugin over sockets, of this version of NCCL's interface.
std::unique_ptr<TestNetwork> over_plugin(int version) {
  setenv("NCCL_NET_PLUGIN",
         (PLUGINS "/libnccl-net-tutti_sockets_v" + std::to_string(version) + ".so").c_str(), 1);
  return std::make_unique<OfMakers>(make_plugin_endpoints(), make_plugin_endpoints());
}

}  // namespace

std::vector<NetworkCase> network_cases() {
  return {
      {"Tcp", [](std::string&) { return of_kind(WireKind::tcp); }},
      {"StripedTcp",
       [](std::string&) { return std::make_unique<Striped>(of_kind(WireKind::tcp)); }},
      {"UcxOverTcp", [](std::string& why_not) { return over_ucx("tcp", why_not); }},
      {"UcxInMemory", [](std::string& why_not) { return over_ucx("shm", why_not); }},
      {"Verbs", over_verbs},
      {"DelayedTcp", [](std::string&) { return delayed(of_kind(WireKind::tcp)); }},
      {"DelayedStripedTcp",
       [](std::string&) { return delayed(std::make_unique<Striped>(of_kind(WireKind::tcp))); }},
      {"DelayedUcx", [](std::string& why_not) { return delayed(over_ucx("tcp", why_not)); }},
      {"Cards", [](std::string&) { return std::make_unique<CardNetwork>(); }},
      {"PluginV8", [](std::string&) { return over_plugin(8); }},
      {"PluginV12", [](std::string&) { return over_plugin(12); }},
  };
}

}  // namespace tutti::test
