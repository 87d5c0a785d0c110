//! Makes the types of `proto/mailbox/v1/mailbox.proto`, without a compiler to be installed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "proto")]
    generated::make()?;
    Ok(())
}

#[cfg(feature = "proto")]
mod generated {
    use std::error::Error;
    use std::fmt::Write as _;
    use std::path::{Path, PathBuf};

    use tonic_prost_build::FileDescriptorSet;

    /// Where imports are looked for.
    const ROOT: &str = "../../proto";
    const FILE: &str = "mailbox/v1/mailbox.proto";
    /// Messages with payloads, receipt handles, capabilities, or what went wrong with a payload;
    /// how they are shown is written by hand, in `src/proto/shown.rs`.
    const SECRET: [&str; 11] = [
        ".mailbox.v1.SendRequest",
        ".mailbox.v1.BatchMessage",
        ".mailbox.v1.Envelope",
        ".mailbox.v1.Record",
        ".mailbox.v1.AckRequest",
        ".mailbox.v1.NackRequest",
        ".mailbox.v1.ExtendRequest",
        ".mailbox.v1.SettleItem",
        ".mailbox.v1.MintCapabilityResponse",
        ".mailbox.v1.RevokeCapabilityRequest",
        ".mailbox.v1.RotateKeyResponse",
    ];

    pub(crate) fn make() -> Result<(), Box<dyn Error>> {
        println!("cargo:rerun-if-changed={ROOT}");
        let out = PathBuf::from(std::env::var("OUT_DIR")?);
        let mut compiler = protox::Compiler::new([Path::new(ROOT)])?;
        // Comments become documentation.
        compiler.include_imports(true).include_source_info(true).open_file(FILE)?;
        std::fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
        std::fs::write(out.join("shapes.rs"), shapes(&compiler.file_descriptor_set())?)?;
        let has_service = cfg!(feature = "grpc");
        tonic_prost_build::configure()
            .out_dir(&out)
            .build_client(has_service)
            .build_server(has_service)
            .build_transport(false)
            .codec_path("crate::proto::Codec")
            // Slices of the buffer that was read, instead of copies.
            .bytes(".")
            // Sorted, as attributes are everywhere else.
            .btree_map(".")
            // Hardly ever there, and larger than what is there instead.
            .boxed(".mailbox.v1.BatchResult.result.error")
            .boxed(".mailbox.v1.SettleResult.result.error")
            .skip_debug(SECRET)
            .compile_fds(compiler.file_descriptor_set())?;
        Ok(())
    }

    // Of `google/protobuf/descriptor.proto`.
    const REPEATED: i32 = 3;
    const STRING: i32 = 9;
    const MESSAGE: i32 = 11;

    /// Which fields have to be counted before a message is read: see `src/proto/fields.rs`.
    fn shapes(files: &FileDescriptorSet) -> Result<String, Box<dyn Error>> {
        let mut code = String::new();
        for message in files.file.iter().flat_map(|file| &file.message_type) {
            writeln!(code, "impl Shaped for v1::{} {{", message.name())?;
            writeln!(code, "    const SHAPE: Shape = &[")?;
            for field in &message.field {
                // Entries of a map are a message inside of the message.
                let inside = |name: &str| format!(".{}.{name}", message.name());
                let mut nested = message.nested_type.iter();
                let entry = nested.find(|it| field.type_name().ends_with(&inside(it.name())));
                let is_text = |kind| kind == Some(STRING);
                let shape = match (field.r#type, field.label == Some(REPEATED), entry) {
                    (Some(MESSAGE), true, Some(entry))
                        if entry.field.iter().all(|it| is_text(it.r#type)) =>
                    {
                        "Attributes".to_owned()
                    }
                    (Some(MESSAGE), is_many, None) => {
                        let (_, name) = field.type_name().rsplit_once('.').ok_or("no package")?;
                        let count = if is_many { "Many" } else { "One" };
                        format!("{count}(<v1::{name} as Shaped>::SHAPE)")
                    }
                    (kind, true, _) if is_text(kind) => "Texts".to_owned(),
                    (_, true, _) => return Err(format!("nobody counts {}", field.name()).into()),
                    (_, false, _) => continue,
                };
                writeln!(code, "        ({}, Field::{shape}),", field.number())?;
            }
            writeln!(code, "    ];\n}}")?;
        }
        Ok(code)
    }
}
