// Weights that move, as Python sees them: arrays of which each rank has some boxes. weights.py has
// the functions that take dicts of arrays, torch tensors and DTensors.
#include "bindings/python/weights.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/python/buffer.h"
#include "bindings/python/communicator.h"
#include "core/error.h"
#include "parallel/reshard/reshard.h"
#include "parallel/weights/local_layout.h"
#include "parallel/weights/receiver.h"
#include "parallel/weights/sender.h"

namespace tutti::python {
namespace {

using namespace nb::literals;
namespace weights = parallel::weights;
namespace reshard = parallel::reshard;

/// A name, an array with a box of the tensor, the tensor's shape, and the box's offset in it.
using NamedPiece =
    std::tuple<std::string, nb::object, std::vector<std::uint64_t>, std::vector<std::uint64_t>>;

/// The arrays of this rank. Holds them.
class Pieces {
 public:
  Pieces(const std::vector<NamedPiece>& named, Buffer::Access access) {
    for (const auto& [name, array, shape, offset] : named) {
      const auto& buffer =
          buffers_.emplace_back(std::make_unique<Buffer>(array, access, name.c_str()));
      if (buffer->on_gpu()) {
        throw nb::type_error(
            fmt::format("'{}' is GPU memory; weights that move are in host memory", name).c_str());
      }
      const ElementType& element = buffer->element();
      const bool known =
          element.kind == ElementType::Kind::number || element.kind == ElementType::Kind::boolean;
      if (!known) {
        throw nb::type_error(
            fmt::format("'{}' has elements of a type that Tutti does not know; pass its bytes",
                        name)
                .c_str());
      }
      weights::LocalPiece piece{{name, element.type, shape}, offset, {}};
      for (const std::int64_t n : buffer->shape()) {
        piece.extent.push_back(static_cast<std::uint64_t>(n));
      }
      local_.push_back(std::move(piece));
    }
  }

  /// Collective.
  reshard::Layout layout(Communicator& comm) {
    reshard::Layout gathered = weights::gather_layout(comm, local_);
    for (std::size_t i = 0; i < local_.size(); ++i) {
      numbers_.push_back(gathered.buffer(std::to_string(i)));
    }
    all_ = gathered.buffers.size();
    return gathered;
  }
  /// By buffer of the layout.
  std::vector<void*> pointers() const {
    std::vector<void*> pointers(all_);
    for (std::size_t i = 0; i < numbers_.size(); ++i) pointers[numbers_[i]] = buffers_[i]->data();
    return pointers;
  }
  std::vector<const void*> sources() const {
    const auto all = pointers();
    return {all.begin(), all.end()};
  }

 private:
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<weights::LocalPiece> local_;
  std::vector<std::uint32_t> numbers_;  // by piece: that of its buffer in the layout
  std::size_t all_ = 0;
};

class PythonReshard {
 public:
  PythonReshard(PythonCommunicator& comm, const std::vector<NamedPiece>& from,
                const std::vector<NamedPiece>& to)
      : from_(from, Buffer::Access::read), to_(to, Buffer::Access::write) {
    const Callers::Call in_call(comm.callers());
    const Waiting waiting;
    reshard::Layout a = from_.layout(comm.get()), b = to_.layout(comm.get());
    reshard_.emplace(comm.get(), std::move(a), std::move(b));
    reshard_->bind(from_.sources(), to_.pointers());
  }
  void run() {
    const Waiting waiting;
    reshard_->run();
  }

 private:
  Pieces from_, to_;  // the memory that is bound
  std::optional<reshard::Reshard> reshard_;
};

weights::WeightsOptions options_from(bool changes, bool planes, double patience) {
  weights::WeightsOptions o;
  o.ways = {.changes = changes, .planes = planes};
  o.patience = to_nanoseconds(patience);
  return o;
}

class PythonSender {
 public:
  PythonSender(PythonCommunicator& comm, const std::vector<NamedPiece>& pieces,
               const std::string& place, const weights::WeightsOptions& options)
      : pieces_(pieces, Buffer::Access::read) {
    const Callers::Call in_call(comm.callers());
    const Waiting waiting;
    reshard::Layout layout = pieces_.layout(comm.get());
    sender_.emplace(comm.get(), std::move(layout), weights::folder_place(place), options);
  }
  int send(std::uint64_t version) {
    const auto sources = pieces_.sources();
    const Waiting waiting;
    return sender_->send(version, sources).receivers;
  }
  void leave() {
    const Waiting waiting;
    sender_->leave();
  }

 private:
  Pieces pieces_;
  std::optional<weights::Sender> sender_;
};

class PythonReceiver {
 public:
  PythonReceiver(PythonCommunicator& comm, const std::vector<NamedPiece>& pieces,
                 const std::string& place, const weights::WeightsOptions& options)
      : pieces_(pieces, Buffer::Access::write) {
    const Callers::Call in_call(comm.callers());
    const Waiting waiting;
    reshard::Layout layout = pieces_.layout(comm.get());
    receiver_.emplace(comm.get(), std::move(layout), weights::folder_place(place),
                      pieces_.pointers(), options);
  }
  std::uint64_t receive() {
    const Waiting waiting;
    return receiver_->receive();
  }
  std::uint64_t resume(PythonCommunicator& comm) {
    const Callers::Call in_call(comm.callers());
    const Waiting waiting;
    return receiver_->resume(comm.get());
  }
  std::uint64_t version() const { return receiver_->version(); }
  void leave() {
    const Waiting waiting;
    receiver_->leave();
  }

 private:
  Pieces pieces_;
  std::optional<weights::Receiver> receiver_;
};

}  // namespace

void bind_weights(nb::module_& module) {
  module.def(
      "_layout",
      [](PythonCommunicator& comm, const std::vector<NamedPiece>& named) {
        Pieces pieces(named, Buffer::Access::read);
        const Callers::Call in_call(comm.callers());
        const Waiting waiting;
        return to_json(pieces.layout(comm.get()));
      },
      "comm"_a, "pieces"_a);
  nb::class_<PythonReshard>(module, "_Reshard")
      .def(nb::init<PythonCommunicator&, const std::vector<NamedPiece>&,
                    const std::vector<NamedPiece>&>(),
           "comm"_a, "source"_a, "target"_a)
      .def("run", &PythonReshard::run);
  nb::class_<PythonSender>(module, "_WeightSender")
      .def(
          "__init__",
          [](PythonSender* self, PythonCommunicator& comm, const std::vector<NamedPiece>& pieces,
             const std::string& place, bool changes, bool planes, double patience) {
            new (self) PythonSender(comm, pieces, place, options_from(changes, planes, patience));
          },
          "comm"_a, "pieces"_a, "place"_a, "changes"_a, "planes"_a, "patience"_a)
      .def("send", &PythonSender::send, "version"_a)
      .def("leave", &PythonSender::leave);
  nb::class_<PythonReceiver>(module, "_WeightReceiver")
      .def(
          "__init__",
          [](PythonReceiver* self, PythonCommunicator& comm, const std::vector<NamedPiece>& pieces,
             const std::string& place, double patience) {
            new (self) PythonReceiver(comm, pieces, place, options_from(true, true, patience));
          },
          "comm"_a, "pieces"_a, "place"_a, "patience"_a)
      .def("receive", &PythonReceiver::receive)
      .def("resume", &PythonReceiver::resume, "comm"_a)
      .def("leave", &PythonReceiver::leave)
      .def_prop_ro("version", &PythonReceiver::version);
}

}  // namespace tutti::python
