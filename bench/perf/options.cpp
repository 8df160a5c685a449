// Parsing with CLI11; see options.h.
#include "bench/perf/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <vector>

#include "core/error.h"
#include "core/settings.h"
#include "tools/command_line/usage_error.h"

namespace tutti::perf {

namespace {

// An option that takes nccl-tests' default alone: other values ask for something that is not here.
void add_fixed(CLI::App& app, const std::string& names, int default_value,
               const std::string& meaning) {
  app.add_option_function<std::string>(
         names,
         [names, default_value](const std::string& text) {
           if (text == std::to_string(default_value)) return;
           throw CLI::ValidationError(
               fmt::format("{}: {} is not supported by these programs; leave it at {}", names, text,
                           default_value));
         },
         fmt::format("{} (not supported: must be {})", meaning, default_value))
      ->take_last();
}

CLI::Option* add_integer(CLI::App& app, const std::string& names, int& value, int low, int high,
                         const std::string& meaning) {
  return app.add_option(names, value, meaning)
      ->take_last()
      ->capture_default_str()
      ->check([names, low, high](const std::string& text) -> std::string {
        int number = 0;
        if (!CLI::detail::lexical_cast(text, number)) {
          return fmt::format("'{}' is not a whole number of at most 32 bits", text);
        }
        if (number >= low && number <= high) return "";
        if (high == std::numeric_limits<int>::max()) {
          return fmt::format("{} is out of range, it must be at least {}", text, low);
        }
        return fmt::format("{} is out of range, it must be {} to {}", text, low, high);
      });
}

// "0" or "1", as nccl-tests spells its switches.
void add_switch(CLI::App& app, const std::string& names, bool& value, const std::string& meaning) {
  app.add_option_function<std::string>(
         names,
         [names, &value](const std::string& text) {
           if (text != "0" && text != "1") {
             throw CLI::ValidationError(fmt::format("{}: '{}' is neither 0 nor 1", names, text));
           }
           value = text == "1";
         },
         meaning + " [0]")
      ->type_name("0/1")
      ->take_last();
}

void add_bytes(CLI::App& app, const std::string& names, std::size_t& value,
               const std::string& meaning) {
  app.add_option_function<std::string>(
         names,
         [names, &value](const std::string& text) {
           try {
             value = parse_bytes(text);
           } catch (const Error& error) {
             throw CLI::ValidationError(fmt::format("{}: {}", names, error.what()));
           }
         },
         fmt::format("{} [{}]", meaning, value))
      ->type_name("SIZE")
      ->take_last();
}

// A name, or "all" for an empty optional.
template <class Value, class Parse>
void add_name(CLI::App& app, const std::string& names, std::optional<Value>& value, Parse parse,
              const std::string& choices, const std::string& meaning) {
  app.add_option_function<std::string>(
         names,
         [names, choices, &value, parse](const std::string& text) {
           if (text == "all") {
             value.reset();
             return;
           }
           value = parse(text);
           if (!value) {
             throw CLI::ValidationError(
                 fmt::format("{}: '{}' is none of {}", names, text, choices));
           }
         },
         meaning + ": " + choices)
      ->type_name("NAME")
      ->take_last();
}

// Where to read and write enumerations and sizes on the way through CLI11.
struct Raw {
  int blocking = 0;
  int average = 1;
  int local_register = -1;  // the default of the memory at hand
  std::string compress;
  std::optional<int> step_factor;
};

void add_options(CLI::App& app, PerfOptions& options, Raw& raw) {
  constexpr int kAny = std::numeric_limits<int>::max();
  add_integer(app, "-t,--nthreads", options.threads, 1, 4096,
              "threads per process; each is a rank, or has the ranks of -g");
  add_integer(
      app, "-g,--ngpus", options.gpus, 1, 4096,
      "ranks per thread, on GPU memory; they take the GPUs in turn, so several may be on one")
      ->default_str("one rank, on host memory");
  add_bytes(app, "-b,--minbytes", options.min_bytes, "smallest size; suffixes K, M, G");
  add_bytes(app, "-e,--maxbytes", options.max_bytes, "largest size");
  add_bytes(app, "-i,--stepbytes", options.step_bytes, "from size to size: add this");
  app.add_option("-f,--stepfactor", raw.step_factor, "from size to size: multiply by this")
      ->take_last();
  add_integer(app, "-n,--iters", options.iterations, 1, kAny, "timed iterations");
  add_integer(app, "-w,--warmup_iters", options.warmup, 0, kAny, "iterations before them");
  add_integer(app, "-m,--agg_iters", options.aggregate, 1, 1 << 20,
              "calls per iteration, run as one group");
  add_integer(app, "-N,--run_cycles", options.cycles, 0, kAny, "run it all again; 0: for ever");
  add_switch(app, "-p,--parallel_init", options.parallel_init,
             "thread ranks join at the same time (they always do)");
  add_integer(app, "-c,--check", options.checks, 0, kAny, "calls whose results are checked");
  add_name(app, "-o,--op", options.op, parse_reduce_kind, "sum, prod, max, min, avg, mulsum, all",
           "reduction");
  add_name(app, "-d,--datatype", options.type, parse_data_type,
           "int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, f8e4m3, "
           "f8e5m2, all",
           "data type");
  add_integer(app, "-r,--root", options.root, -1, kAny, "root; -1 or all: one after the other")
      ->transform([](const std::string& text) { return text == "all" ? "-1" : text; });
  add_integer(
      app, "-z,--blocking", raw.blocking, 0, 3,
      "1: barrier after each call; 2: no barrier, but wait for each call; 3: barrier after each "
      "iteration, not timed");
  add_fixed(app, "-y,--stream_null", 0, "use the null stream");
  add_integer(app, "-T,--timeout", options.timeout_seconds, 0, 1 << 20,
              "seconds a call may take; 0: no limit");
  add_integer(app, "-G,--cudagraph", options.graph_launches, 0, 1 << 20,
              "GPU memory: record the iterations as a CUDA graph, and launch it N times");
  add_switch(app, "-C,--report_cputime", options.cpu_time,
             "the time columns are the CPU time of the calling thread");
  add_switch(app, "-S,--report_timestamps", options.timestamps, "date and time on every line");
  app.add_option("-J,--output_file", options.output_file, "also write the results as JSON")
      ->take_last();
  add_integer(app, "-a,--average", raw.average, 0, 3,
              "time over ranks: 0 rank 0's, 1 mean, 2 minimum, 3 maximum");
  add_integer(app, "-R,--local_register", raw.local_register, 0, 2,
              "host memory: 0 from malloc; 1, 2 window memory (tutti::allocate). GPU memory, for "
              "--nccl: 0 cudaMalloc; 1 and ncclCommRegister; 2 ncclMemAlloc and "
              "ncclCommWindowRegister")
      ->default_str("2; 0 with -g");
  add_fixed(app, "-x,--cta_policy", -1, "CTA policy");
  add_fixed(app, "-D,--device_implementation", 0, "device-side implementation");
  add_fixed(app, "-V,--device_cta_count", 16, "its CTAs");
  add_switch(app, "-M,--memory", options.memory_report, "report memory use");
  add_integer(app, "-u,--unalign", options.unalign, 0, 1 << 16,
              "start the buffers this many elements off alignment");
  add_switch(app, "-I,--per_iter_timing", options.per_iteration,
             "also time every iteration: minimum, maximum, p99, coefficient of variation");
  add_integer(app, "-K,--per_iter_skip", options.skip_iterations, 0, kAny,
              "leave out this many of them");
  app.add_flag("--started", options.started,
               "on host memory: each call is start() and wait(), not a blocking one");
  app.add_flag(
      "--invariant", options.invariant,
      "reductions whose bits depend on the inputs and the order of the ranks alone, as with "
      "TUTTI_INVARIANT=1");
  app.add_option(
         "--compress", raw.compress,
         "all_reduce_perf and reduce_scatter_perf on host memory: messages carry 8 bits for\n"
         "an element (8bit)")
      ->type_name("HOW")
      ->check(CLI::IsMember({"8bit"}));
  app.add_flag(
      "--bits", options.bits,
      "reductions on host memory: also a hash of the result of a fixed input, which is the "
      "same for all sizes and machines where --invariant is on");
  app.add_option("--nccl", options.nccl,
                 "a libnccl.so.2 to measure in turn with Tutti, on the same buffers; ratio: NCCL's "
                 "time / Tutti's")
      ->type_name("PATH")
      ->take_last();
}

// What is wrong with the options together; "" if nothing.
std::string contradiction(std::string_view program, const PerfOptions& options, const Raw& raw) {
  if (options.min_bytes > options.max_bytes) {
    return fmt::format("--minbytes {} is larger than --maxbytes {}; pass -b and -e together",
                       options.min_bytes, options.max_bytes);
  }
  // Buffers have guard zones and an unaligned start on top.
  if (options.max_bytes > std::numeric_limits<std::ptrdiff_t>::max() / 4) {
    return fmt::format("--maxbytes {} cannot be allocated", options.max_bytes);
  }
  if (raw.step_factor) {
    if (*raw.step_factor < 2) {
      return fmt::format("--stepfactor {} would never reach --maxbytes; it must be at least 2",
                         *raw.step_factor);
    }
    if (options.min_bytes == 0 && options.max_bytes > 0) {
      return "--stepfactor cannot leave --minbytes 0; start at 1 or use --stepbytes";
    }
  } else if (options.step_bytes == 0 && options.min_bytes < options.max_bytes) {
    return "--stepbytes 0 would never reach --maxbytes";
  }
  if (options.skip_iterations > 0 && !options.per_iteration) {
    return "--per_iter_skip is about --per_iter_timing 1, which is off";
  }
  if (options.skip_iterations >= options.iterations) {
    return fmt::format("--per_iter_skip {} leaves none of {} iterations", options.skip_iterations,
                       options.iterations);
  }
  if (options.graph_launches > 0) {
    if (options.gpus == 0) return "--cudagraph is about GPU memory; say --ngpus (-g) as well";
    if (raw.blocking != 0) return "--blocking cannot wait between the calls of a --cudagraph";
    if (options.per_iteration) return "--per_iter_timing cannot look into a --cudagraph";
  }
  if (options.compressed) {
    if (program != "all_reduce_perf" && program != "reduce_scatter_perf") {
      return "--compress is about all_reduce and reduce_scatter alone";
    }
    if (options.gpus > 0) return "--compress is about host memory; leave --ngpus (-g) out";
    if (options.bits) return "--bits has inputs that --compress rounds; leave one of them out";
    if (!options.nccl.empty())
      return "--compress is not what --nccl measures; leave one of them out";
  }
  if (options.started && options.gpus > 0) {
    return "--started is about host memory; leave --ngpus (-g) out";
  }
  if (options.started && options.aggregate > 1) {
    return "--started is about single calls; leave --agg_iters (-m) out";
  }
  if (options.bits && options.gpus > 0) {
    return "--bits is about host memory; leave --ngpus (-g) out";
  }
  if (options.cycles == 0 && !options.output_file.empty()) {
    return "--run_cycles 0 never ends, so --output_file would never be written";
  }
  return "";
}

}  // namespace

ParsedOptions parse_options(std::string_view program, std::span<const std::string> arguments) {
  ParsedOptions parsed;
  Raw raw;
  CLI::App app(
      fmt::format("{}: times and checks a collective, with the options of nccl-tests.", program),
      std::string(program));
  add_options(app, parsed.options, raw);
  const auto fail = [&](const std::string& message) {
    parsed.run = false;
    parsed.exit_code = 2;
    parsed.text = fmt::format("{}: {} (--help lists the options)\n", program, message);
  };
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    parsed.run = false;
    parsed.text = app.help();
    return parsed;
  } catch (const CLI::Error& error) {
    fail(usage_error(app, error));
    return parsed;
  }
  parsed.options.blocking = static_cast<Blocking>(raw.blocking);
  parsed.options.compressed = !raw.compress.empty();
  parsed.options.average = static_cast<Average>(raw.average);
  parsed.options.local_register = raw.local_register >= 0   ? raw.local_register
                                  : parsed.options.gpus > 0 ? 0
                                                            : PerfOptions().local_register;
  const std::string problem = contradiction(program, parsed.options, raw);
  if (!problem.empty()) {
    fail(problem);
    return parsed;
  }
  parsed.options.step_factor = static_cast<std::size_t>(raw.step_factor.value_or(0));
  return parsed;
}

std::optional<std::size_t> next_size(const PerfOptions& options, std::size_t size) {
  const std::size_t left = options.max_bytes - size;
  if (options.step_factor > 1) {
    if (size == 0 || size > options.max_bytes / options.step_factor) return std::nullopt;
    return size * options.step_factor;
  }
  if (options.step_bytes == 0 || options.step_bytes > left) return std::nullopt;
  return size + options.step_bytes;
}

}  // namespace tutti::perf
