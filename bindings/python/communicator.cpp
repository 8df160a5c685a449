// A thin layer: arguments become an Operation (operation.h), which runs without the GIL.
#include "bindings/python/communicator.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "bindings/python/errors.h"
#include "bindings/python/operation.h"
#include "core/error.h"

namespace tutti::python {
namespace {

using namespace nb::literals;
using std::chrono::duration;
using std::chrono::nanoseconds;

nanoseconds to_nanoseconds(double seconds) {
  return std::chrono::duration_cast<nanoseconds>(duration<double>(std::min(seconds, 1e9)));
}

/// What type hints should call Any: whatever a call returns.
nb::any any_of(nb::object o) { return nb::steal<nb::any>(o.release()); }

/// The groups of a thread, and the operations that wait for the end of the outermost.
struct OpenGroups {
  int depth = 0;
  std::vector<std::unique_ptr<Operation>> operations;
};
OpenGroups& open_groups() {
  thread_local OpenGroups g;
  return g;
}

/// A started call. Its memory is held until it is over, also where Python lets go of this before.
class PythonFuture {
 public:
  PythonFuture(Future future, std::unique_ptr<Operation> operation)
      : future_(std::move(future)), operation_(std::move(operation)) {}
  PythonFuture(PythonFuture&&) = default;
  ~PythonFuture() {
    if (!operation_ || future_.ready()) return;
    abandoned().push_back({std::move(future_), std::move(operation_)});
  }

  bool done() const { return future_.ready(); }

  nb::any wait(std::optional<double> timeout) {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::milliseconds kMoment(50);  // between looks whether Ctrl-C was pressed
    const auto begun = Clock::now();
    const nanoseconds most = timeout ? to_nanoseconds(*timeout) : nanoseconds::max();
    while (!future_.ready()) {
      const nanoseconds left = timeout ? most - (Clock::now() - begun) : nanoseconds(kMoment);
      if (left.count() <= 0) {
        PyErr_SetString(PyExc_TimeoutError,
                        fmt::format("the operation was not over after {} s", *timeout).c_str());
        throw nb::python_error();
      }
      {
        const nb::gil_scoped_release release;
        try {
          future_.wait_for(std::min<nanoseconds>(left, kMoment));
        } catch (const Error&) {
          if (!future_.ready()) throw;
          // Else it is thrown below.
        }
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
    return result();
  }

  nb::any result() {
    future_.wait();
    return any_of(operation_->result);
  }

  /// A descriptor that becomes readable when it is over, for event loops; the caller's to close.
  int descriptor() {
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) throw_system_error("eventfd");
    // Its own: it may be written after the caller has closed that one.
    const int own = dup(fd);
    try {
      if (own < 0) throw_system_error("dup");
      future_.on_ready([own] {
        const std::uint64_t one = 1;
        [[maybe_unused]] const auto written = write(own, &one, sizeof one);
        close(own);
      });
    } catch (...) {
      if (own >= 0) close(own);
      close(fd);
      throw;
    }
    return fd;
  }

  /// Lets go of what abandoned operations held, where they are over.
  static void tidy() {
    std::erase_if(abandoned(), [](const Abandoned& a) { return a.future.ready(); });
  }

 private:
  struct Abandoned {
    Future future;
    std::unique_ptr<Operation> operation;
  };
  /// Under the GIL. Never destroyed: what is there at the end may still be written to.
  static std::vector<Abandoned>& abandoned() {
    static auto* const all = new std::vector<Abandoned>;
    return *all;
  }

  Future future_;
  std::unique_ptr<Operation> operation_;
};

/// The thread that is in a call of a communicator, which one may at a time. Under the GIL.
class Turn {
 public:
  explicit Turn(std::optional<std::thread::id>& whose) : whose_(whose) {
    if (whose_) {
      throw Error(ErrorCode::invalid_usage,
                  "this communicator is in another call, of another thread or of one that a "
                  "signal's handler has interrupted: one thread at a time calls it, except abort() "
                  "and check(). Let the threads start what they call, and wait for that "
                  "(async_op=True), or give each its own communicator: split(0), on all ranks in "
                  "the same order");
    }
    whose_ = std::this_thread::get_id();
  }
  ~Turn() { whose_.reset(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::optional<std::thread::id>& whose_;
};

class PythonCommunicator {
 public:
  explicit PythonCommunicator(Communicator comm) : comm_(std::move(comm)) {}
  PythonCommunicator(PythonCommunicator&&) = default;
  ~PythonCommunicator() {
    if (!comm_) return;
    const nb::error_scope before;  // an exception may be on its way
    leave();
    if (PyErr_Occurred() != nullptr) PyErr_WriteUnraisable(nullptr);
  }

  Communicator& get() { return comm_; }
  Turn turn() { return Turn(in_call_); }
  Ranks ranks() const { return {comm_.rank(), comm_.size()}; }

  void destroy() {
    // What another thread is waiting for is one of this rank's operations.
    while (comm_ && in_call_ && in_call_ != std::this_thread::get_id()) {
      {
        const nb::gil_scoped_release release;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
    const Turn turn(in_call_);
    leave();
    if (PyErr_Occurred() != nullptr) throw nb::python_error();  // Ctrl-C
  }

  /// Has `fill` make an operation, and runs or starts it.
  template <class Fill>
  nb::any call(bool async_op, std::uintptr_t stream, Fill&& fill) {
    (void)comm_.impl();  // before anything else: it may be destroyed
    const Turn turn(in_call_);
    if (async_op || open_groups().depth > 0) return keep(async_op, stream, fill);
    Operation o;
    fill(o);
    if (o.on_gpu()) {
      const Waiting waiting;
      comm_.run(o.call, reinterpret_cast<void*>(stream));
    } else {
      const Waiting waiting;
      comm_.run(o.call);
    }
    return any_of(std::move(o.result));
  }

 private:
  /// Where Ctrl-C ends what is waited for, its exception is set afterwards.
  void leave() {
    if (!comm_) return;
    const Waiting waiting;
    comm_.destroy();
  }

  template <class Fill>
  nb::any keep(bool async_op, std::uintptr_t stream, Fill&& fill) {
    PythonFuture::tidy();
    auto o = std::make_unique<Operation>();
    fill(*o);
    if (async_op) {
      if (o->on_gpu()) {
        throw Error(ErrorCode::invalid_usage,
                    "async_op: a call on GPU memory is put on its stream anyway, and returns");
      }
      Future future = comm_.start(o->call);
      return any_of(nb::cast(PythonFuture(std::move(future), std::move(o))));
    }
    if (o->on_gpu()) {
      comm_.run(o->call, reinterpret_cast<void*>(stream));
    } else {
      comm_.run(o->call);
    }
    nb::any result = any_of(o->result);
    open_groups().operations.push_back(std::move(o));
    return result;
  }

  Communicator comm_;
  std::optional<std::thread::id> in_call_;
};

/// Options from keyword arguments; None: the default.
Options options_of(std::optional<double> timeout, std::optional<double> rendezvous_timeout,
                   std::optional<std::string> algorithm) {
  Options options;
  if (timeout) options.timeout = to_nanoseconds(*timeout);
  if (rendezvous_timeout) options.rendezvous_timeout = to_nanoseconds(*rendezvous_timeout);
  if (algorithm) options.algorithm = *algorithm;
  return options;
}

/// Exceptions by which programs and generators end.
bool ends_well(nb::handle exception) {
  return PyErr_GivenExceptionMatches(exception.ptr(), PyExc_SystemExit) != 0 ||
         PyErr_GivenExceptionMatches(exception.ptr(), PyExc_GeneratorExit) != 0;
}

using Self = PythonCommunicator&;

void bind_future(nb::module_& module) {
  nb::class_<PythonFuture>(module, "Future", "The result of a call with async_op=True.")
      .def("done", &PythonFuture::done, "Whether it is over (or has failed). Never blocks.")
      .def("wait", &PythonFuture::wait, "timeout"_a = nb::none(),
           "Blocks until it is over; returns what the call would have returned, or raises its\n"
           "error. With `timeout` (seconds): raises TimeoutError if it takes longer; it goes on.")
      .def("_descriptor", &PythonFuture::descriptor)
      .def("_result", &PythonFuture::result);
}

void bind_making(nb::class_<PythonCommunicator>& c) {
  c.def_static(
      "from_environment",
      [](std::optional<double> timeout, std::optional<double> rendezvous_timeout,
         std::optional<std::string> algorithm) {
        const Options options = options_of(timeout, rendezvous_timeout, std::move(algorithm));
        const Waiting waiting;
        return PythonCommunicator(Communicator::from_environment(options));
      },
      nb::kw_only(), "timeout"_a = nb::none(), "rendezvous_timeout"_a = nb::none(),
      "algorithm"_a = nb::none(),
      "The communicator of the job that a launcher started: tutti run, torchrun, mpirun or srun;\n"
      "of one rank where there is none. Blocks until all ranks are there.\n\n"
      "timeout: seconds that an operation may take (0: any time); rendezvous_timeout: seconds for\n"
      "all ranks to appear; algorithm: the one to be used where it exists. None: as the\n"
      "environment says (TUTTI_TIMEOUT, ...).");
  c.def_static(
      "create",
      [](const std::string& id, int rank, int size, std::optional<double> timeout,
         std::optional<double> rendezvous_timeout, std::optional<std::string> algorithm) {
        const Options options = options_of(timeout, rendezvous_timeout, std::move(algorithm));
        const UniqueId unique = unique_id_from_string(id);
        const Waiting waiting;
        return PythonCommunicator(Communicator::create(unique, rank, size, options));
      },
      "id"_a, "rank"_a, "size"_a, nb::kw_only(), "timeout"_a = nb::none(),
      "rendezvous_timeout"_a = nb::none(), "algorithm"_a = nb::none(),
      "All `size` ranks call this with the same id, which one of them has from make_unique_id()\n"
      "and has brought to the others.");
  c.def_static(
      "create_local",
      [](int size, std::optional<double> timeout, std::optional<std::string> algorithm) {
        std::vector<Communicator> made;
        {
          const Options options = options_of(timeout, std::nullopt, std::move(algorithm));
          const Waiting waiting;
          made = Communicator::create_local(size, options);
        }
        nb::typed<nb::list, PythonCommunicator> all;
        for (Communicator& comm : made) all.append(PythonCommunicator(std::move(comm)));
        return all;
      },
      "size"_a, nb::kw_only(), "timeout"_a = nb::none(), "algorithm"_a = nb::none(),
      "A list of `size` communicators, one for each of that many threads of this process.");
}

void bind_collectives(nb::class_<PythonCommunicator>& c) {
  c.def(
      "all_reduce",
      [](Self self, nb::handle x, nb::object out, nb::handle op, bool async_op,
         std::uintptr_t stream) {
        return self.call(async_op, stream,
                         [&](Operation& o) { all_reduce(o, x, std::move(out), op); });
      },
      "x"_a, "out"_a = nb::none(), "op"_a = "sum", nb::kw_only(), "async_op"_a = false,
      "stream"_a = 0,
      "Reduces x over all ranks, elementwise; every rank gets the same bits.\n\n"
      "x: any shape, the same on all ranks. In place unless `out` is given. Returns the result.\n"
      "op: \"sum\", \"prod\", \"min\", \"max\", \"avg\" or pre_multiplied_sum(scalar).");
  c.def(
      "reduce",
      [](Self self, nb::handle x, nb::object out, nb::handle op, int root, bool async_op,
         std::uintptr_t stream) {
        return self.call(async_op, stream, [&](Operation& o) {
          reduce(o, self.ranks(), x, std::move(out), op, root);
        });
      },
      "x"_a, "out"_a = nb::none(), "op"_a = "sum", "root"_a = 0, nb::kw_only(),
      "async_op"_a = false, "stream"_a = 0,
      "As all_reduce, but only `root` gets the result (in place unless `out` is given there), and\n"
      "the others None.");
  c.def(
      "reduce_scatter",
      [](Self self, nb::handle x, nb::object out, nb::handle op, bool async_op,
         std::uintptr_t stream) {
        return self.call(async_op, stream, [&](Operation& o) {
          reduce_scatter(o, self.ranks(), x, std::move(out), op);
        });
      },
      "x"_a, "out"_a = nb::none(), "op"_a = "sum", nb::kw_only(), "async_op"_a = false,
      "stream"_a = 0,
      "Reduces x, and gives each rank its part: x of shape (size * n, ...) becomes (n, ...).");
  c.def(
      "reduce_scatter_v",
      [](Self self, nb::handle x, std::vector<std::size_t> counts, nb::object out, nb::handle op,
         bool async_op, std::uintptr_t stream) {
        return self.call(async_op, stream, [&](Operation& o) {
          reduce_scatter_v(o, self.ranks(), x, std::move(counts), std::move(out), op);
        });
      },
      "x"_a, "counts"_a, "out"_a = nb::none(), "op"_a = "sum", nb::kw_only(), "async_op"_a = false,
      "stream"_a = 0, "As reduce_scatter, with counts[r] elements for rank r.");
  c.def(
      "all_gather",
      [](Self self, nb::handle x, nb::object out, bool async_op, std::uintptr_t stream) {
        return self.call(async_op, stream,
                         [&](Operation& o) { all_gather(o, self.ranks(), x, std::move(out)); });
      },
      "x"_a, "out"_a = nb::none(), nb::kw_only(), "async_op"_a = false, "stream"_a = 0,
      "Every rank gets the x of all: shape (size, *x.shape).");
  c.def(
      "all_gather_v",
      [](Self self, nb::handle x, std::vector<std::size_t> counts, nb::object out, bool async_op,
         std::uintptr_t stream) {
        return self.call(async_op, stream, [&](Operation& o) {
          all_gather_v(o, self.ranks(), x, std::move(counts), std::move(out));
        });
      },
      "x"_a, "counts"_a, "out"_a = nb::none(), nb::kw_only(), "async_op"_a = false, "stream"_a = 0,
      "As all_gather, with counts[r] elements from rank r, one after the other.");
  c.def(
      "broadcast",
      [](Self self, nb::handle x, int root, bool async_op, std::uintptr_t stream) {
        return self.call(async_op, stream,
                         [&](Operation& o) { broadcast(o, x, self.ranks(), root); });
      },
      "x"_a, "root"_a = 0, nb::kw_only(), "async_op"_a = false, "stream"_a = 0,
      "x of `root` comes into the x of all others. Returns x.");
  c.def(
      "gather",
      [](Self self, nb::handle x, nb::object out, int root, bool async_op, std::uintptr_t stream) {
        return self.call(async_op, stream,
                         [&](Operation& o) { gather(o, self.ranks(), x, std::move(out), root); });
      },
      "x"_a, "out"_a = nb::none(), "root"_a = 0, nb::kw_only(), "async_op"_a = false,
      "stream"_a = 0, "`root` gets the x of all, shape (size, *x.shape); the others None.");
  c.def(
      "scatter",
      [](Self self, nb::handle x, nb::object out, int root, bool async_op, std::uintptr_t stream) {
        return self.call(async_op, stream,
                         [&](Operation& o) { scatter(o, self.ranks(), x, std::move(out), root); });
      },
      "x"_a.none(), "out"_a = nb::none(), "root"_a = 0, nb::kw_only(), "async_op"_a = false,
      "stream"_a = 0,
      "Each rank gets its part of the root's x: shape (size * n, ...) becomes (n, ...). Ranks\n"
      "other than the root give `out`; their x may be None.");
  c.def(
      "all_to_all",
      [](Self self, nb::handle x, nb::object out, bool async_op, std::uintptr_t stream) {
        return self.call(async_op, stream,
                         [&](Operation& o) { all_to_all(o, self.ranks(), x, std::move(out)); });
      },
      "x"_a, "out"_a = nb::none(), nb::kw_only(), "async_op"_a = false, "stream"_a = 0,
      "Part i of x goes to rank i, and part j of the result comes from rank j, where x has\n"
      "`size` parts along its first dimension.");
  c.def(
      "all_to_all_v",
      [](Self self, nb::handle x, std::vector<std::size_t> in_counts,
         std::vector<std::size_t> out_counts, nb::object out, bool async_op,
         std::uintptr_t stream) {
        return self.call(async_op, stream, [&](Operation& o) {
          all_to_all_v(o, self.ranks(), x, std::move(in_counts), std::move(out_counts),
                       std::move(out));
        });
      },
      "x"_a, "in_counts"_a, "out_counts"_a, "out"_a = nb::none(), nb::kw_only(),
      "async_op"_a = false, "stream"_a = 0,
      "As all_to_all: in_counts[r] elements go to rank r, out_counts[r] come from it.");
  c.def(
      "send",
      [](Self self, nb::handle x, int peer, bool async_op, std::uintptr_t stream) {
        return self.call(async_op, stream, [&](Operation& o) { send(o, x, peer); });
      },
      "x"_a, "peer"_a, nb::kw_only(), "async_op"_a = false, "stream"_a = 0,
      "Sends x to rank `peer`, which calls recv(); it may return before that. Messages of two\n"
      "ranks are matched in their order.");
  c.def(
      "recv",
      [](Self self, nb::handle x, int peer, bool async_op, std::uintptr_t stream) {
        return self.call(async_op, stream, [&](Operation& o) { recv(o, x, peer); });
      },
      "x"_a, "peer"_a, nb::kw_only(), "async_op"_a = false, "stream"_a = 0,
      "Receives from rank `peer` into x. Returns x.");
  c.def(
      "barrier",
      [](Self self, bool async_op) {
        return self.call(async_op, 0,
                         [](Operation& o) { o.call.collective = Collective::barrier; });
      },
      nb::kw_only(), "async_op"_a = false, "Returns when all ranks have called it.");
}

void bind_life(nb::class_<PythonCommunicator>& c) {
  c.def_prop_ro("rank", [](Self self) { return self.get().rank(); });
  c.def_prop_ro("size", [](Self self) { return self.get().size(); });
  c.def_prop_ro(
      "transports", [](Self self) { return self.get().transports(); },
      "What carries the bytes, for people.");
  c.def(
      "split",
      [](Self self, int color, int key, std::optional<double> timeout,
         std::optional<std::string> algorithm) -> std::optional<PythonCommunicator> {
        const Options options = options_of(timeout, std::nullopt, std::move(algorithm));
        Communicator made;
        {
          const Turn turn = self.turn();
          const Waiting waiting;
          made = self.get().split(color, key, options);
        }
        if (!made) return std::nullopt;
        return PythonCommunicator(std::move(made));
      },
      "color"_a, "key"_a = 0, nb::kw_only(), "timeout"_a = nb::none(), "algorithm"_a = nb::none(),
      "A communicator of the ranks with the same color, ordered by key, then by rank; None for a\n"
      "negative color. All ranks call it.");
  c.def(
      "shrink",
      [](Self self, const std::vector<int>& excluded, std::optional<double> timeout,
         std::optional<double> rendezvous_timeout) {
        const Options options = options_of(timeout, rendezvous_timeout, std::nullopt);
        const Turn turn = self.turn();
        const Waiting waiting;
        return PythonCommunicator(self.get().shrink(excluded, options));
      },
      "excluded"_a, nb::kw_only(), "timeout"_a = nb::none(), "rendezvous_timeout"_a = nb::none(),
      "A communicator of the ranks that are not in `excluded`, which call this with the same "
      "list;\n"
      "the excluded may be dead, and this communicator have failed.");
  c.def(
      "use_plan",
      [](Self self, const std::string& text) {
        const Turn turn = self.turn();
        self.get().use_plan(text);
      },
      "text"_a,
      "Runs the plan `text` for its collective from now on, once it is proved. All ranks call it.");
  c.def(
      "abort", [](Self self, const std::string& reason) { self.get().abort(reason); },
      "reason"_a = "", "Makes every rank's operations fail, now and later. From any thread.");
  c.def(
      "check",
      [](Self self) {
        if (const std::optional<Error> error = self.get().error()) throw Error(*error);
      },
      "Raises the error that the next call would raise. Does not wait.");
  c.def(
      "destroy", [](Self self) { self.destroy(); },
      "Leaves, once this rank's operations are over. Does not wait for other ranks.");
  c.def(
      "__enter__", [](nb::object self) { return self; },
      nb::sig("def __enter__(self) -> Communicator"));
  c.def(
      "__exit__",
      [](Self self, nb::handle type, nb::handle value, nb::handle) {
        // The others would wait for what this rank was about to do.
        if (self.get() && !type.is_none() && !ends_well(type)) {
          self.get().abort(nb::repr(value).c_str());
        }
        self.destroy();
      },
      "type"_a.none(), "value"_a.none(), "traceback"_a.none());
  c.def("__bool__", [](Self self) { return static_cast<bool>(self.get()); });
  c.def("__repr__", [](Self self) -> std::string {
    if (!self.get()) return "<tutti.Communicator, destroyed>";
    return fmt::format("<tutti.Communicator, rank {} of {}, {}>", self.get().rank(),
                       self.get().size(), self.get().transports());
  });
}

void bind_groups(nb::module_& module) {
  module.def("_group_start", [] {
    group_start();
    ++open_groups().depth;
  });
  module.def("_group_end", [] {
    OpenGroups& groups = open_groups();
    --groups.depth;
    const auto operations =
        groups.depth == 0 ? std::exchange(groups.operations, {}) : decltype(groups.operations){};
    const Waiting waiting;
    group_end();
  });
  module.def("_group_drop", [] {
    OpenGroups& groups = open_groups();
    group_drop();
    if (--groups.depth == 0) groups.operations.clear();
  });
}

}  // namespace

void bind_communicator(nb::module_& module) {
  bind_future(module);
  nb::class_<PythonCommunicator> c(
      module, "Communicator",
      "Ranks (processes or threads) that communicate, one of which this is.\n\n"
      "Calls take arrays: anything with the buffer protocol, DLPack, __array_interface__ or\n"
      "__cuda_array_interface__. Nothing is copied, so arrays have to be contiguous. Other\n"
      "threads run meanwhile, and Ctrl-C ends a call (on all ranks: it cannot be completed).\n"
      "With async_op=True a call returns a Future; its arrays belong to it until it is over.\n"
      "Errors are of tutti.Error.");
  bind_making(c);
  bind_collectives(c);
  bind_life(c);
  bind_groups(module);
  module.def(
      "make_unique_id",
      [] {
        const UniqueId id = make_unique_id();
        return to_string(id);
      },
      "A fresh id for Communicator.create(), as text. The ranks meet in this process, so it has "
      "to\n"
      "live until they have. Whoever knows the id may join.");
}

}  // namespace tutti::python
