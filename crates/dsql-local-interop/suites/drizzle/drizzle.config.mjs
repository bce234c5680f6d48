export default { dialect: "postgresql", schema: "./schema.mjs", out: "./migrations" };
